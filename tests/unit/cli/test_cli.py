"""The command line: what is understood, what is printed, what the exit status says."""

import argparse
import json
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from headgate import __version__
from headgate.build import BUILD
from headgate.cli import main
from headgate.cli.check_text import lines_of
from headgate.config import SETTINGS
from headgate.console.descriptors import parse_descriptor
from headgate.console.target import why_closed
from headgate.errors import ConfigError
from headgate_client import Code, Decision, DescriptorStatus, Limit, Tls
from headgate_client.unmet import Unmet, encode_unmet
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

SEVEN_PER_DAY = "domain: a\ndescriptors:\n- {key: x, rate_limit: {unit: day, requests_per_unit: 7}}\n"
METHOD = "ShouldRateLimit"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("user=alice", [("user", "alice")]),
        ("user=alice,path=/login", [("user", "alice"), ("path", "/login")]),
        ("query=a=1", [("query", "a=1")]),
        ("query=a=1=2,b=", [("query", "a=1=2"), ("b", "")]),
        (r"list=a\,b,c=d", [("list", "a,b"), ("c", "d")]),
        (r"a\=b=c", [("a=b", "c")]),
        (r"path=C:\\dir\n", [("path", "C:\\dir\\n")]),
        ("end=\\", [("end", "\\")]),
        (r"v=\=\,\\", [("v", "=,\\")]),
        ("snow=\u2603", [("snow", "\u2603")]),
    ],
)
def test_descriptors_are_pairs_with_an_escape(text: str, pairs: list[tuple[str, str]]) -> None:
    assert parse_descriptor(text) == pairs


@pytest.mark.parametrize("text", ["", "user", "=alice", "a=b,", ",", "a=b,,c=d", r"a\=b"])
def test_what_is_no_descriptor_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_descriptor(text)


STATUS_WITHOUT = RateLimitResponse.DescriptorStatus(code=RateLimitResponse.OK)
STATUS_UNLIMITED = RateLimitResponse.DescriptorStatus(code=RateLimitResponse.OK, limit_remaining=2**32 - 1)
STATUS_LIMITED = RateLimitResponse.DescriptorStatus(
    code=RateLimitResponse.OK, current_limit=RateLimitResponse.RateLimit(requests_per_unit=1)
)


class Answering:
    """A server of the test's own, that says what it is told and keeps what it was asked."""

    def __init__(self, bind: str) -> None:
        self.answer: RateLimitResponse | grpc.StatusCode = RateLimitResponse()
        self.requests: list[RateLimitRequest] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        handler = grpc.unary_unary_rpc_method_handler(
            self._handle, RateLimitRequest.FromString, RateLimitResponse.SerializeToString
        )
        service = "envoy.service.ratelimit.v3.RateLimitService"
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {METHOD: handler})])
        port = self._server.add_insecure_port(bind)
        self.address = bind if bind.startswith("unix:") else f"127.0.0.1:{port}"
        self._server.start()

    def _handle(self, request: RateLimitRequest, context: grpc.ServicerContext) -> RateLimitResponse:
        self.requests.append(request)
        if isinstance(self.answer, grpc.StatusCode):
            context.abort(self.answer, "made up")
        assert isinstance(self.answer, RateLimitResponse)
        return self.answer

    def stop(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture(params=["tcp", "unix"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Answering]:
    answering = Answering("127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/s")
    yield answering
    answering.stop()


def test_check_prints_the_decision_as_json(server: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    answer = RateLimitResponse(overall_code=RateLimitResponse.OK)
    status = answer.statuses.add(code=RateLimitResponse.OK, limit_remaining=3)
    status.current_limit.requests_per_unit = 5
    status.current_limit.unit = RateLimitResponse.RateLimit.MINUTE
    status.current_limit.name = "login"
    status.duration_until_reset.FromMilliseconds(1_500)
    answer.statuses.add(code=RateLimitResponse.OK)
    answer.response_headers_to_add.add(key="RateLimit-Limit", value="5")
    server.answer = answer
    arguments = ["--addr", server.address, "--domain", "edge", "--hits", "2"]
    assert main(["check", *arguments, "user=alice,path=/login", r"q=a\,b"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "overall_code": "OK",
        "statuses": [
            {
                "code": "OK",
                "limit": {"requests_per_unit": 5, "unit": "MINUTE", "name": "login"},
                "remaining": 3,
                "reset_ms": 1500,
                "unmet": None,
            },
            {"code": "OK", "limit": None, "remaining": 0, "reset_ms": None, "unmet": None},
        ],
        "headers": {"RateLimit-Limit": "5"},
    }
    (asked,) = server.requests
    assert (asked.domain, asked.hits_addend) == ("edge", 2)
    entries = [[(entry.key, entry.value) for entry in one.entries] for one in asked.descriptors]
    assert entries == [[("user", "alice"), ("path", "/login")], [("q", "a,b")]]


def test_check_exits_1_over_the_limit(server: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer = RateLimitResponse(overall_code=RateLimitResponse.OVER_LIMIT)
    assert main(["check", "--timeout", "60", "--addr", server.address, "--domain", "edge", "user=alice"]) == 1
    assert json.loads(capsys.readouterr().out)["overall_code"] == "OVER_LIMIT"


def test_check_exits_2_on_an_error_with_the_message_on_stderr(
    server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = grpc.StatusCode.INVALID_ARGUMENT
    assert main(["check", "--timeout", "60", "--addr", server.address, "--domain", "edge", "user=alice"]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"headgate: {server.address}: INVALID_ARGUMENT: made up\n")


def test_check_exits_2_when_nobody_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"unix:{tmp_path}/nobody"
    assert main(["check", "--addr", address, "--domain", "edge", "--timeout", "5", "user=alice"]) == 2
    assert f"headgate: {address}: UNAVAILABLE: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--domain", "edge"],
        ["user=alice"],
        ["--domain", "edge", "--hits", "-1", "user=alice"],
        ["--domain", "edge", "--hits", "4294967296", "user=alice"],
        ["--domain", "edge", "--timeout", "0", "user=alice"],
    ],
)
def test_check_exits_2_when_it_can_not_be_asked(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["check", *arguments])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["check", "--domain", "d", "--hits", "many", "a=b"],
            "--hits: a whole number from 0 to 4294967295, got 'many'",
        ),
        (
            ["check", "--domain", "d", "--timeout", "0", "a=b"],
            "--timeout: seconds, more than 0 and at most 3600, got '0'",
        ),
        (["key", "override", "--factor", "2x", "a=b"], "--factor: a number above 0, such as 2 or 0.5, got '2x'"),
        (["explain", "--window", "5x"], "--window: a stretch of time such as 30s, 5m or 1h, got '5x'"),
    ],
)
def test_an_argument_says_what_it_takes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err


def test_check_exits_2_on_a_bad_descriptor_or_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--domain", "edge", "user"]) == 2
    assert capsys.readouterr().err == "headgate: 'user': expected key=value, got 'user'\n"
    assert main(["check", "--domain", "edge", "--tls-ca", "/no/such/file", "user=alice"]) == 2
    assert "/no/such/file" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "missing"), [("cert", "key"), ("key", "cert")])
def test_half_a_client_certificate_is_said_and_ends_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, missing: str
) -> None:
    """gRPC itself would abort the process."""
    half = tmp_path / "half.pem"
    half.write_text("whatever")
    assert main(["check", "--domain", "edge", f"--tls-{given}", str(half), "user=alice"]) == 2
    said = f"a client certificate is a pair: {given} is given and {missing} is not"
    assert capsys.readouterr().err == f"headgate: {said}\n"
    with pytest.raises(ValueError, match=said):
        Tls(cert=half) if given == "cert" else Tls(key=half)


def test_a_client_certificate_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = tmp_path / "none.pem"
    half.write_text("whatever")
    files = ["--tls-cert", str(half), "--tls-key", str(half)]
    assert main(["check", "--domain", "edge", *files, "user=alice"]) == 2
    assert f"{half} and {half} are no certificate and its key" in capsys.readouterr().err
    assert main(["check", "--domain", "edge", "--tls-cert", str(half), "--tls-key", "/no/key", "user=alice"]) == 2
    assert "/no/key" in capsys.readouterr().err


def test_check_with_no_hits_looks_without_charging(server: Answering) -> None:
    """On the wire a request's 0 means 1; a descriptor's means 0."""
    assert main(["check", "--addr", server.address, "--domain", "edge", "--hits", "0", "user=alice", "ip=x"]) == 0
    assert main(["check", "--addr", server.address, "--domain", "edge", "user=alice"]) == 0
    looking, asking = server.requests
    assert [one.HasField("hits_addend") for one in looking.descriptors] == [True, True]
    assert [one.hits_addend.value for one in looking.descriptors] == [0, 0]
    assert (asking.hits_addend, asking.descriptors[0].HasField("hits_addend")) == (1, False)


def test_check_says_when_no_rule_applies(server: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "--addr", server.address, "--domain", "egde", "user=alice", "ip=x"]
    server.answer = RateLimitResponse(overall_code=RateLimitResponse.OK, statuses=[STATUS_WITHOUT, STATUS_WITHOUT])
    assert main(arguments) == 0
    said = "headgate: warning: no rule of domain 'egde' applies to"
    why = "`headgate rules explain DIR --domain egde"
    assert capsys.readouterr().err == f"{said} user=alice ip=x; {why} user=alice ip=x` says why\n"
    server.answer = RateLimitResponse(overall_code=RateLimitResponse.OK, statuses=[STATUS_LIMITED, STATUS_WITHOUT])
    assert main(arguments) == 0
    assert capsys.readouterr().err == f"{said} ip=x; {why} ip=x` says why\n"
    server.answer = RateLimitResponse(overall_code=RateLimitResponse.OK, statuses=[STATUS_LIMITED, STATUS_UNLIMITED])
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""


def test_check_tells_a_wrong_domain_from_a_wrong_key(server: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "--addr", server.address, "--domain", "edge", "plan=gold", "trial=t1"]
    said = {
        Unmet.NO_DOMAIN: "headgate: warning: this server has no rules for domain 'edge': nothing limits the request\n",
        Unmet.NO_RULE: "headgate: warning: no rule of domain 'edge' applies to plan=gold; `headgate rules explain DIR "
        "--domain edge plan=gold` says why\n",
        Unmet.REPLACED: "",
        Unmet.EXEMPT: "",
    }
    for reason, warning in said.items():
        status = RateLimitResponse.DescriptorStatus.FromString(
            STATUS_WITHOUT.SerializeToString() + encode_unmet(reason)
        )
        server.answer = RateLimitResponse(overall_code=RateLimitResponse.OK, statuses=[status, STATUS_LIMITED])
        assert main(arguments) == 0
        told = capsys.readouterr()
        assert told.err == warning
        assert json.loads(told.out)["statuses"][0]["unmet"] == reason.name.lower()


DENIED = DescriptorStatus(Code.OVER_LIMIT, Limit(100, "MINUTE", ""), 0, 34_462)
ROOM = DescriptorStatus(Code.OK, Limit(20, "UNKNOWN", ""), 19, 34_462)
BANNED = DescriptorStatus(Code.OVER_LIMIT, Limit(0, "SECOND", ""), 0, 240)
NO_DOMAIN = DescriptorStatus(Code.OK, None, 0, None, Unmet.NO_DOMAIN)


@pytest.mark.parametrize(
    ("code", "statuses", "lines"),
    [
        (Code.OK, [ROOM], ["OK: a=1 is within its limit of 20, with 19 left."]),
        (Code.OVER_LIMIT, [DENIED], ["OVER LIMIT: a=1 is over its limit of 100 per minute: try again in 34.462 s."]),
        (Code.OVER_LIMIT, [BANNED], ["OVER LIMIT: a=1 is always denied: its limit is 0."]),
        (Code.OK, [NO_DOMAIN], ["OK: a=1 is not limited: this server has no rules for domain 'd'."]),
        (
            Code.OVER_LIMIT,
            [ROOM, DENIED],
            [
                "OVER LIMIT:",
                "  a=1 is within its limit of 20, with 19 left, and was not charged.",
                "  b=2 is over its limit of 100 per minute: try again in 34.462 s.",
            ],
        ),
    ],
)
def test_decisions_in_sentences(code: Code, statuses: list[DescriptorStatus], lines: list[str]) -> None:
    assert lines_of(Decision(code, tuple(statuses)), "d", ["a=1", "b=2"]) == lines


@pytest.mark.parametrize(
    ("message", "status", "hint"),
    [
        ("… (Trying to connect an http1.x server (HTTP status 400))", "UNAVAILABLE", "an HTTP server is there"),
        ("Method not found!", "UNIMPLEMENTED", "this port does not serve it"),
    ],
)
def test_a_wrong_port_is_named(message: str, status: str, hint: str) -> None:
    args = argparse.Namespace(tls=False, tls_ca=None, tls_cert=None, tls_key=None)
    assert hint in why_closed(args, status, message)


def test_rules_check_takes_one_file_whatever_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("nonsense")
    rules = tmp_path / "rules.draft"
    rules.write_text("domain: a\ndescriptors:\n- {key: x, rate_limit: {unit: day, requests_per_unit: 1}}\n")
    assert main(["rules", "check", str(rules)]) == 0
    assert capsys.readouterr().out == "ok: 1 limit in 1 domain\n"
    assert main(["rules", "explain", str(rules), "--domain", "a", "x=1"]) == 0
    rules.write_text("domain: ''\n")
    assert main(["rules", "check", str(rules)]) == 1
    assert f"{rules}:1: `domain` is empty" in capsys.readouterr().out


def test_rules_check_warns_and_still_says_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "a.yaml"
    rules.write_text(
        "domain: a\ndescriptors:\n- {key: x, value: '*'}\n"
        "- {key: x, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: nobody}]}}\n"
    )
    assert main(["rules", "check", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[:2] for line in lines[:2]] == [[f"{rules}:4", "warning"]] * 2
    assert lines[2] == "ok: 1 limit in 1 domain"
    assert main(["rules", "check", "--strict", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == lines[:2]
    assert told.err == "headgate: 2 warnings (--strict)\n"


def test_rules_explain_says_what_replaces_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(
        "domain: a\ndescriptors:\n"
        "- {key: plan, value: gold, rate_limit: {name: gold, unit: day, requests_per_unit: 1}}\n"
        "- {key: trial, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: gold}]}}\n"
    )
    assert main(["rules", "explain", str(tmp_path), "--domain", "a", "plan=gold", "trial=t1"]) == 0
    said = "rule `a: trial` replaces rule `a: plan=gold`, which neither counts nor denies this request\n"
    assert capsys.readouterr().out.endswith(said)
    assert main(["rules", "explain", str(tmp_path), "--domain", "a", "plan=gold"]) == 0
    assert "neither counts" not in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "meant"), [(["chekc"], "check"), (["rules", "explan", "DIR"], "explain")])
def test_a_command_that_is_misspelt_is_guessed(
    typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(typed)
    assert capsys.readouterr().err.endswith(f"; did you mean {meant}?\n")


def test_a_command_that_is_like_no_other_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["zzz"])
    assert "did you mean" not in capsys.readouterr().err


def test_rules_check_says_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(
        "domain: a\ndescriptors:\n- {key: x, rate_limit: {unit: day, requests_per_unit: 1}}\n"
    )
    assert main(["rules", "check", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "ok: 1 limit in 1 domain\n"


def test_rules_check_prints_every_problem_of_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("domain: a\ndescriptors:\n- key: ''\n- {key: x, value: 1, colour: red}\n")
    (tmp_path / "b.yml").write_text("domain: b\ndescriptors: 7\n")
    assert main(["rules", "check", str(tmp_path)]) == 1
    output = capsys.readouterr()
    places = [":".join(line.split(":")[:2]) for line in output.out.splitlines()]
    assert places == [f"{tmp_path}/a.yaml:3", f"{tmp_path}/a.yaml:4", f"{tmp_path}/b.yml:2"]
    assert output.err == "headgate: 3 problems\n"


def test_rules_check_of_nothing_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().out.startswith(f"{tmp_path}/none:1: ")


def test_rules_explain_says_which_rule_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(
        "domain: a\ndescriptors:\n- {key: x, rate_limit: {unit: day, requests_per_unit: 7}}\n"
    )
    assert main(["rules", "explain", str(tmp_path), "--domain", "a", "x=1", "y=1"]) == 0
    output = capsys.readouterr().out
    assert "7 per day" in output
    assert f"{tmp_path}/a.yaml:3" in output
    assert "no rule" in output


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"headgate {__version__} ({BUILD})\n"


def test_version_as_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"headgate {__version__} ({BUILD})\n")


def test_the_help_of_serve_names_every_flag_default_and_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    for setting in SETTINGS:
        (at,) = [n for n, line in enumerate(lines) if line.split()[:1] == [setting.flag]]
        # A long flag has its help on the line below it.
        entry = lines[at] if f"[{setting.env}]" in lines[at] else lines[at] + lines[at + 1]
        assert f"[{setting.env}]" in entry
        assert setting.default_text in entry
    assert "examples:" in text


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["serve", "--nonsense"], ["serve", "--origin-dead", "5"]])
def test_what_is_no_command_is_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize("flag", ["--store", "--plane-store"])
def test_a_store_and_an_upstream_are_refused_by_the_flag_that_was_given(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plane", flag, "postgresql://db/plane", "--upstream", "127.0.0.1:1", "--data-dir", "d"]) == 2
    assert f"headgate: {flag}: upstream is given too: a relay's log" in capsys.readouterr().err
