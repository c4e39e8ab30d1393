"""The first minutes of a newcomer: what the README says to type does what it says."""

import json
import re
import shlex
import shutil
from pathlib import Path

from headgate.transport.http_page import page_address

from tests.support.headgate import run, serve
from tests.support.source import ROOT
from tests.support.waiting import wait_until

README = (ROOT / "README.md").read_text()


def commands() -> list[list[str]]:
    """Of the section `Run it`, without what starts the server."""
    (section,) = re.findall(r"^## Run it$(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    return [shlex.split(line, comments=True) for line in re.findall(r"^(?:headgate|curl) .*$", section, re.MULTILINE)]


def lasting_rules(place: Path) -> Path:
    """examples/rules, with a year for a minute: no window ends between two commands."""
    shutil.copytree(ROOT / "examples" / "rules", place)
    for file in place.iterdir():
        file.write_text(file.read_text().replace("unit: minute", "unit: year"))
    return place


def make_run(rules: Path, data_dir: Path) -> list[str]:
    """Arguments that `make run` gives to `headgate serve`, with these rules and this directory."""
    (recipe,) = re.findall(r"^run: .*\n\t@?\S+headgate serve (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    known = {"examples/rules": str(rules), "data": str(data_dir)}
    return [known.get(word, word) for word in shlex.split(recipe)]


def test_what_the_readme_says_to_type_does_what_it_says(tmp_path: Path) -> None:
    *asked, top, explain, replay, curl = commands()
    rules, data_dir = lasting_rules(tmp_path / "rules"), tmp_path / "data"
    _, served, *options = make_run(rules, data_dir)
    with serve(Path(served), *options) as server:
        places = {"127.0.0.1:8081": server.grpc, "data": str(data_dir), "examples/rules": str(rules)}

        def here(words: list[str]) -> list[str]:
            return [places.get(word, word) for word in words[1:]]

        assert [run(*here(words), "--timeout", "60").returncode for words in asked] == [0, 0, 1]
        shown = run(*top[1:], "--addr", server.http)
        assert (shown.returncode, "alice" in shown.stdout) == (0, True), shown.stderr
        wait_until(lambda: run(*here(explain)).returncode == 0, "the denial to be in the log")
        assert "The request was denied at" in run(*here(explain)).stdout
        replayed = run(*here(replay))
        assert (replayed.returncode, "denied then: 1 request of 1 caller" in replayed.stdout) == (0, True)
        assert [word for word in curl if word.endswith("/json")] == ["http://127.0.0.1:8080/json"]
        body = json.loads(curl[curl.index("--json") + 1])
        statuses = [server.post_json(body).status for _ in range(101)]
        assert statuses == [200] * 100 + [429]
        page = server.wait_for_event("serving")["page"]
        assert page == f"http://{server.http}/"
        assert server.get("/").headers["content-type"].startswith("text/html")


def test_the_readme_says_where_the_page_of_make_run_is() -> None:
    """With the default address, which is every one of the machine."""
    assert page_address({"http": "0.0.0.0:8080"}) == {"page": "http://127.0.0.1:8080/"}
    assert page_address({"http": "[::]:8080", "admin": "10.0.0.1:9090"}) == {"page": "http://10.0.0.1:9090/"}
    assert page_address({"http": "unix:/run/headgate/http"}) == {}
    assert "http://127.0.0.1:8080/" in README
