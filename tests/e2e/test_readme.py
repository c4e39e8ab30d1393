"""The first minutes of a newcomer: what the README says to type does what it says."""

import json
import re
import shlex
import shutil
from pathlib import Path

from tests.support.headgate import run, serve
from tests.support.source import ROOT

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


def test_what_the_readme_says_to_type_does_what_it_says(tmp_path: Path) -> None:
    *asked, top, curl = commands()
    with serve(lasting_rules(tmp_path / "rules")) as server:

        def here(words: list[str]) -> list[str]:
            return [word.replace("127.0.0.1:8081", server.grpc) for word in words[1:]]

        assert [run(*here(words), "--timeout", "60").returncode for words in asked] == [0, 0, 1]
        shown = run(*top[1:], "--addr", server.http)
        assert (shown.returncode, "alice" in shown.stdout) == (0, True), shown.stderr
        assert [word for word in curl if word.endswith("/json")] == ["http://127.0.0.1:8080/json"]
        body = json.loads(curl[curl.index("--json") + 1])
        statuses = [server.post_json(body).status for _ in range(101)]
        assert statuses == [200] * 100 + [429]
        assert server.get("/").headers["content-type"].startswith("text/html")
