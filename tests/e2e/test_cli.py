"""Commands against real processes, as users type them."""

import json
import os
import pty
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from headgate import __version__
from headgate.build import BUILD
from headgate.telemetry.tallies import MAX_DOMAINS
from headgate_client import AsyncClient, Client, Code, Descriptor, RateLimitError
from prometheus_client.parser import text_string_to_metric_families

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import FREE_PORTS, Headgate, clean_environ, run, serve, write_rules
from tests.support.waiting import PATIENCE_S

YEAR_MS = 365 * 86_400_000


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules")


def check(headgate: Headgate, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run("check", "--timeout", str(PATIENCE_S), "--addr", headgate.grpc, "--domain", "edge", *arguments)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def test_a_user_is_counted_down_and_then_denied(rules: Path) -> None:
    with serve(rules, "--response-headers") as headgate:
        status, answer = check(headgate, "user=alice")
        assert (status, answer["overall_code"]) == (0, "OK")
        (first,) = answer["statuses"]
        assert first["limit"] == {"requests_per_unit": 5, "unit": "YEAR", "name": ""}
        assert first["remaining"] == 4
        assert 0 < first["reset_ms"] <= YEAR_MS
        assert answer["headers"]["RateLimit-Remaining"] == "4"
        assert check(headgate, "--hits", "4", "user=alice")[0] == 0
        status, answer = check(headgate, "user=alice")
        assert (status, answer["overall_code"]) == (1, "OVER_LIMIT")
        assert int(answer["headers"]["Retry-After"]) >= 1
        assert check(headgate, "user=bob")[0] == 0
        assert check(headgate, "colour=red") == (
            0,
            {
                "overall_code": "OK",
                "statuses": [{"code": "OK", "limit": None, "remaining": 0, "reset_ms": None, "unmet": "no_rule"}],
                "headers": {},
            },
        )


def test_a_person_gets_a_sentence_and_a_program_json(rules: Path) -> None:
    with serve(rules) as headgate:
        main, terminal = pty.openpty()
        ask = ["check", "--timeout", str(PATIENCE_S), "--addr", headgate.grpc, "--domain", "edge"]
        for more in ([], ["--json"]):
            command = [sys.executable, "-m", "headgate", *ask, *more, "user=alice"]
            subprocess.run(command, stdout=terminal, check=True, env=clean_environ({}))
        os.close(terminal)
        said = os.read(main, 4096).decode().replace("\r\n", "\n")
        os.close(main)
    sentence, _, answer = said.partition("\n")
    assert sentence == "OK: user=alice is within its limit of 5 per year, with 4 left."
    assert json.loads(answer)["statuses"][0]["remaining"] == 3


def test_a_request_that_nothing_limits_is_warned_of_once(rules: Path) -> None:
    with serve(rules) as headgate:
        for domain, said in (("egde", "has no rules for domain 'egde'"), ("edge", "no rule of domain 'edge' applies")):
            done = run("check", "--timeout", str(PATIENCE_S), "--addr", headgate.grpc, "--domain", domain, "usr=alice")
            assert done.returncode == 0
            (line,) = done.stderr.splitlines()
            assert said in line


def test_a_stray_http2_connection_is_nobodys_error(rules: Path) -> None:
    """As of `check` with HTTP's port: the command says what is there, and the server logs nothing of it."""
    with serve(rules) as headgate:
        done = run("check", "--timeout", str(PATIENCE_S), "--addr", headgate.http, "--domain", "edge", "user=alice")
        assert done.returncode == 2
        assert "an HTTP server is there: gRPC has a port of its own" in done.stderr
        assert headgate.get("/readyz").status == 200
    assert [line for line in headgate.events if line["level"] in ("warning", "error")] == []


def test_json_counts_on_the_same_counters_as_grpc(rules: Path) -> None:
    body = {"domain": "edge", "hitsAddend": 3, "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]}
    with serve(rules) as headgate:
        assert headgate.post_json(body).json()["statuses"][0]["limitRemaining"] == 2
        assert check(headgate, "--hits", "2", "user=alice")[0] == 0
        denied = headgate.post_json(body)
        assert (denied.status, denied.json()["overallCode"]) == (429, "OVER_LIMIT")
        assert headgate.post_json(b"garbage").status == 400
        assert denied.body.endswith(b"}\n"), "the prompt of a shell is on a line of its own"
        assert denied.headers.get("x-headgate-no-rule") is None
        for domain, key, header in (("edgee", "user", "domain"), ("edge", "usr", "descriptor")):
            unmet = headgate.post_json({"domain": domain, "descriptors": [{"entries": [{"key": key, "value": "x"}]}]})
            assert (unmet.status, unmet.headers.get("x-headgate-no-rule")) == (200, header)
        assert headgate.post_json({"domain": "", "descriptors": []}).status == 400
        assert headgate.post_json(b" " * 65_537).status == 413


@pytest.mark.parametrize("arguments", [["serve", "--workers", "2"], ["serve", "--rules"], ["serve"]])
def test_bad_settings_exit_2_without_a_traceback(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_workers_with_memory_say_what_to_do_instead(rules: Path) -> None:
    done = run("serve", "--rules", str(rules), "--workers", "4")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("headgate: --workers: 4 processes can't share `memory://`")
    assert "--origin redis://host:port" in line
    assert "--workers 1" in line


def test_problems_of_the_config_file_come_with_their_lines(tmp_path: Path) -> None:
    config = tmp_path / "headgate.yaml"
    config.write_text("rules: r\nmax_cels: 5\ndrain_s: soon\n")
    done = run("serve", "--config", str(config), environ={"HEADGATE_HTPP": "x"})
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"headgate: {config}:2: max_cels: is not a setting; did you mean max_cells?",
        f"headgate: {config}:3: drain_s: expected a number from 0 to 3600, got 'soon'",
        "headgate: HEADGATE_HTPP: is not a setting; did you mean HEADGATE_HTTP?",
    ]


def test_an_exchange_in_which_anybody_could_speak_for_a_region_does_not_start(rules: Path) -> None:
    done = run("serve", "--rules", str(rules), "--peer", "eu=127.0.0.1:1", "--exchange", "0.0.0.0:0", *FREE_PORTS)
    assert done.returncode == 1
    assert "--exchange-insecure" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_an_exchanger_alone_says_what_it_lacks(rules: Path) -> None:
    done = run("exchange", "--rules", str(rules), "--origin", "redis://127.0.0.1:1")
    assert (done.returncode, "--peer REGION=ADDR" in done.stderr) == (1, True)
    done = run("exchange", "--rules", str(rules), "--peer", "eu=127.0.0.1:1")
    assert (done.returncode, "use a Redis origin" in done.stderr) == (1, True)
    done = run("exchange", "--origin", "redis://127.0.0.1:1", "--peer", "eu=127.0.0.1:1")
    assert (done.returncode, "rules" in done.stderr.splitlines()[-1]) == (2, True), done.stderr
    empty = ("--rules", str(rules / "nowhere"), "--origin", "redis://127.0.0.1:1", "--peer", "eu=127.0.0.1:1")
    done = run("exchange", *empty)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr


def test_the_installed_command_is_the_module() -> None:
    command = Path(sys.executable).with_name("headgate")
    assert shutil.which(str(command))
    done = subprocess.run([command, "version"], capture_output=True, text=True, check=True, env=clean_environ({}))
    assert done.stdout == run("version").stdout


def test_what_tests_start_is_the_build_that_is_tested(rules: Path, tmp_path: Path) -> None:
    """As tests/conftest.py says which; also where a test puts modules of its own before all others."""
    said = f"headgate {__version__} ({BUILD})\n"
    own_modules = {"PYTHONPATH": str(tmp_path)}
    assert [run("version", environ=environ).stdout for environ in ({}, own_modules)] == [said, said]
    with serve(rules, environ=own_modules) as headgate:
        assert headgate.get("/version").json()["build"] == BUILD


def test_the_examples_are_good_and_limit_users_to_at_most_100_a_minute() -> None:
    examples = Path(__file__).parents[2] / "examples" / "rules"
    assert run("rules", "check", str(examples)).returncode == 0
    done = run("rules", "explain", str(examples), "--domain", "edge", "user=alice")
    assert done.returncode == 0
    assert "100 per minute" in done.stdout


def test_metrics_parse_and_have_as_many_series_after_a_flood_as_before(rules: Path) -> None:
    with serve(rules) as headgate:
        before = _series(headgate)
        with Client(headgate.grpc, timeout_s=PATIENCE_S) as client:
            for number in range(300):
                client.should_rate_limit("edge", [{"user": f"u{number}"}])
                client.should_rate_limit(f"domain{number}", [{f"key{number}": "x"}])
        for number in range(20):
            assert headgate.get(f"/unknown/{number}").status == 404
        after = _series(headgate)
        # What the flood makes: /metrics itself and one for all unknown paths; the rule's; a few unknown domains.
        assert len(before) <= len(after) <= len(before) + 2 + 3 + MAX_DOMAINS + 1 < 150
        assert (
            sum(count for (name, _), count in after.items() if name == "headgate_unknown_domain_requests_total") == 300
        )
        assert after["headgate_decisions_total", ("admitted", "local")] == 300
        assert after["headgate_decisions_total", ("admitted", "no_rule")] == 300
        assert after["headgate_cells_live", ()] == 300
        assert after["headgate_grpc_calls_total", ()] == 600
        assert after["headgate_http_requests_total", ("other", "404")] == 20
        assert after["headgate_ready", ()] == 1
        assert after["headgate_rules_reload_failures_total", ()] == 0
        assert after["process_resident_memory_bytes", ()] > 10_000_000


def _series(headgate: Headgate) -> Counter[tuple[str, tuple[str, ...]]]:
    answer = headgate.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    series: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for family in text_string_to_metric_families(answer.body.decode()):
        assert family.name.startswith(("headgate_", "process_", "target_info"))
        assert family.documentation
        for sample in family.samples:
            series[sample.name, tuple(value for _, value in sorted(sample.labels.items()))] += sample.value  # type: ignore[assignment]
    return series


async def test_the_asyncio_client_decides_like_the_other(rules: Path) -> None:
    with serve(rules) as headgate:
        async with AsyncClient(headgate.grpc, timeout_s=PATIENCE_S) as client:
            first = await client.should_rate_limit("edge", [[("user", "alice")]], 5)
            assert (first.code, first.admitted, first.statuses[0].remaining) == (Code.OK, True, 0)
            assert not (await client.should_rate_limit("edge", [{"user": "alice"}])).admitted
            looked = await client.should_rate_limit("edge", [Descriptor({"user": "bob"}, hits=0)])
            assert looked.statuses[0].remaining == 5
            with pytest.raises(RateLimitError, match="INVALID_ARGUMENT") as caught:
                await client.should_rate_limit("", [{"user": "alice"}])
            assert caught.value.status == "INVALID_ARGUMENT"


def test_tls_and_client_certificates(rules: Path, tmp_path: Path) -> None:
    ours, theirs = authority("ours"), authority("theirs")
    cert, key = issued_by(ours, "localhost").write(tmp_path, "server")
    client_cert, client_key = issued_by(theirs, "client").write(tmp_path, "client")
    ca, client_ca = ours.write(tmp_path, "ca")[0], theirs.write(tmp_path, "client-ca")[0]
    with serve(rules, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", client_ca) as headgate:
        assert headgate.get("/version").json()["transport"] == "guarded"
        known = ["--tls-ca", ca, "--tls-cert", client_cert, "--tls-key", client_key, "--tls-server-name", "localhost"]
        assert check(headgate, *known, "user=alice")[0] == 0
        assert check(headgate, "--tls-ca", ca, "--tls-server-name", "localhost", "user=alice")[0] == 2
        assert check(headgate, "user=alice")[0] == 2


def test_certificates_that_do_not_fit_are_one_clear_line(rules: Path, tmp_path: Path) -> None:
    cert, _ = authority("one").write(tmp_path, "one")
    _, key = authority("two").write(tmp_path, "two")
    done = run(
        "serve", "--rules", str(rules), "--tls-cert", cert, "--tls-key", key, *FREE_PORTS, "--log-level", "error"
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"headgate: {cert} and {key} are no certificate and its key: ")
