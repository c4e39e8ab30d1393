"""The files under examples/envoy: Envoy accepts them, and the demo shows with each what it promises."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml

from tests.support.envoy import validate
from tests.support.examples import EXAMPLES, example, exists, read_until_it_stays
from tests.support.examples import children as children_of
from tests.support.headgate import http_request, run
from tests.support.waiting import wait_until

ENVOY = EXAMPLES / "envoy"
VARIANTS = sorted(path.stem for path in ENVOY.glob("*.yaml"))


def demo(*arguments: str) -> "AbstractContextManager[subprocess.Popen[str]]":
    return example("envoy/demo.py", *arguments)


def test_every_variant_has_a_file() -> None:
    assert VARIANTS == ["floor", "network", "tcp", "tls", "unix"]


def test_the_rules_are_good() -> None:
    checked = run("rules", "check", str(ENVOY / "rules"))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_envoy_accepts_the_file_as_it_is(variant: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, ENVOY / "certificates.py", "certs"], cwd=tmp_path, check=True, timeout=60)
    done = validate(ENVOY / f"{variant}.yaml", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_demo_runs_into_the_limit_and_ends_by_itself(variant: str) -> None:
    with demo(variant, "--once") as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    answers = [line.split(maxsplit=1)[1] for line in output.splitlines() if line.startswith("  ") and line[2].isdigit()]
    assert len(answers) == (16 if variant == "floor" else 8), output
    assert "curl -i" in output
    admitted, denied = answers[0], answers[6:8]
    assert admitted.startswith("200 OK"), output
    if variant == "network":
        assert denied == ["closed by Envoy"] * 2
        return
    assert "x-ratelimit-remaining: 4" in admitted
    for answer in denied:
        assert answer.startswith("429 Too Many Requests"), output
        assert "retry-after: " in answer
        assert answer.endswith("x-envoy-ratelimited: true")


def test_without_headgate_the_floor_denies_what_is_over_twice_the_limit() -> None:
    """The rule is 5 a minute; the floor's bucket is 10, of which Headgate let 5 through before it was killed."""
    with demo("floor", "--once") as process:
        output, _ = process.communicate(timeout=60)
    answers = [line.split(maxsplit=1)[1] for line in output.splitlines() if line.startswith("  ") and line[2].isdigit()]
    before, after = answers[:8], answers[8:]
    assert [answer[:3] for answer in before] == ["200"] * 5 + ["429"] * 3, output
    assert not any("x-denied-by" in answer for answer in before), "while Headgate decides the floor denies nothing"
    admitted = [answer for answer in after if answer.startswith("200")]
    # Five are left in the bucket, and every 6 s there is one more.
    assert 5 <= len(admitted) <= 7, output
    denied = [answer for answer in after if answer not in admitted]
    assert denied == ["429 Too Many Requests  x-denied-by: floor"] * (8 - len(admitted)), output


def test_the_floors_numbers_follow_from_the_rule_and_the_number_of_envoys() -> None:
    envoys = 1
    (rule,) = [
        rule
        for rule in yaml.safe_load((ENVOY / "rules/demo.yaml").read_text())["descriptors"]
        if rule["key"] == "user" and "value" not in rule
    ]
    listeners = yaml.safe_load((ENVOY / "floor.yaml").read_text())["static_resources"]["listeners"]
    filters = listeners[0]["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    assert [item["name"].rpartition(".")[2] for item in filters] == ["ratelimit", "local_ratelimit", "router"]
    (user,) = filters[1]["typed_config"]["descriptors"]
    most = 2 * rule["rate_limit"]["requests_per_unit"] // envoys
    assert user == {
        "entries": [{"key": "user"}],
        "token_bucket": {"max_tokens": most, "tokens_per_fill": most, "fill_interval": "60s"},
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_demo_that_stays_leaves_nothing_behind_when_told_to_go(number: signal.Signals) -> None:
    with demo("unix", "--stay") as process:
        directory = Path(read_until_it_stays(process)[-1].split()[-1])
        children = children_of(process.pid)
        assert len(children) == 2
        process.send_signal(number)
        assert process.wait(60) == 0
    wait_until(lambda: not any(map(exists, children)), "the demo's children to end")
    assert not directory.exists()


def test_nested_rules_and_costs_of_the_tcp_example_work() -> None:
    with demo("tcp", "--stay") as process:
        url = read_until_it_stays(process)[0].split()[1].removeprefix("http://")
        # More than the limit of 3, in case that a minute ends just now.
        logins = [http_request(url, "GET", "/login").status for _ in range(6)]
        assert (logins[0], logins[-1]) == (200, 429)
        costs = [{"x-user": "bob", "x-cost": "60"} for _ in range(2)]
        assert [http_request(url, "GET", "/reports", headers=cost).status for cost in costs] == [200, 429]


def test_a_demo_beside_programs_that_have_its_ports_takes_others() -> None:
    """As with `make run` up: before, its Envoy asked that server, which has no such domain, and nothing was denied."""
    with contextlib.ExitStack() as stack:
        for port in (8080, 8081, 9901, 10000, 10001):
            with contextlib.suppress(OSError):  # then somebody else has it, which is as good
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        with example("envoy/demo.py", "tcp", "--once", ports=None) as process:
            output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "Port 8081 is taken by another program: it is " in output
    answers = [line.split()[1] for line in output.splitlines() if line.startswith("  ") and line[2].isdigit()]
    assert answers == ["200"] * 5 + ["429"] * 3, output


def test_a_demo_whose_child_ends_says_so_and_ends() -> None:
    with demo("unix", "--stay") as process:
        read_until_it_stays(process)
        os.kill(children_of(process.pid)[0], signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 1
    assert "headgate has ended, with -9. The end of its log:" in output


def test_what_the_demo_says_to_try_explains_a_denial() -> None:
    with demo("unix", "--stay") as process:
        lines = read_until_it_stays(process)
        (explain,) = [line.split() for line in lines if " explain " in line]

        def answer() -> str:
            return run(*explain[1:]).stdout

        wait_until(lambda: "The request was denied at " in answer(), "the denials to be in the log")
        assert "Rule user of domain demo applied" in answer()
