"""Tokens of a language model behind a real Envoy: asked for with a cost of 0, charged when the stream is over."""

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.envoy import Envoy, run_envoy, validate
from tests.support.envoy_config import TIMEOUT_S, backend_cluster, backend_listener, http_config, route, static
from tests.support.examples import EXAMPLES
from tests.support.headgate import Headgate, run, serve, write_rules
from tests.support.waiting import wait_until

TOKENS = EXAMPLES / "tokens"
LIMIT = 1000
RULES = (TOKENS / "rules" / "tokens.yaml").read_text().replace("unit: minute", "unit: year")
"""Of a year, so that no window ends during the test."""


class Model(BaseHTTPRequestHandler):
    """Streams a few words, and says in the last event what they cost: what the request's `x-tokens` says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        usage = {"usage": {"prompt_tokens": 1, "total_tokens": int(self.headers["x-tokens"])}}
        for event in ({"delta": "hello"}, {"delta": "you"}, usage):
            self._chunk(f"data: {json.dumps(event)}\n\n".encode())
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_: Any) -> None: ...


@contextlib.contextmanager
def model() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def example(headgate: str, backend: str) -> dict[str, Any]:
    """The example as it is, at other addresses and with patience."""
    config: dict[str, Any] = yaml.safe_load((TOKENS / "envoy.yaml").read_text())
    del config["admin"]
    resources = config["static_resources"]
    resources["listeners"][0]["address"]["socket_address"]["port_value"] = 0
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"][0]["typed_config"]["timeout"] = f"{TIMEOUT_S}s"
    for cluster, address in zip(resources["clusters"], (backend, headgate), strict=True):
        host, _, port = address.rpartition(":")
        endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        endpoint["address"]["socket_address"] = {"address": host, "port_value": int(port)}
    return config


class Gateway:
    """An Envoy with the example's configuration, a Headgate behind it, and how much its callers have used."""

    def __init__(self, envoy: Envoy, headgate: Headgate) -> None:
        self.envoy = envoy
        self.headgate = headgate
        self.asked = 0
        self.used = 0

    def ask(self, tokens: int, user: str = "alice") -> bool:
        """One answer, read to its end, and its cost counted."""
        answer = self.envoy.get("/", {"x-user": user, "x-tokens": str(tokens)})
        assert answer.status in (200, 429)
        admitted = answer.status == 200
        self.asked += 1 + admitted
        wait_until(lambda: self._decided() == self.asked, "the cost of the answer to be counted")
        self.used += tokens if admitted else 0
        return admitted

    def _decided(self) -> int:
        lines = self.headgate.get("/metrics").body.decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("headgate_decisions_total"))


@contextlib.contextmanager
def gateway(directory: Path, rules: str = RULES, **environ: str) -> Iterator[Gateway]:
    write_rules(directory, rules)
    with (
        model() as backend,
        serve(directory, environ=environ) as headgate,
        run_envoy(example(headgate.grpc, backend)) as envoy,
    ):
        yield Gateway(envoy, headgate)


def test_a_limit_on_tokens_is_held_to_within_one_request(tmp_path: Path) -> None:
    chance = random.Random(16)
    with gateway(tmp_path) as world:
        costs = []
        while world.used < LIMIT:
            costs.append(chance.randint(30, 170))
            assert world.ask(costs[-1]), f"denied at {world.used} of {LIMIT}"
        assert world.used < LIMIT + costs[-1]
        assert [world.ask(1) for _ in range(3)] == [False] * 3, "all is used: nobody is let in"
        assert world.ask(50, "bob"), "who has used nothing is"


def test_a_cost_far_beyond_what_is_left_is_charged_whole(tmp_path: Path) -> None:
    with gateway(tmp_path) as world:
        assert world.ask(999)
        assert world.ask(50_000)
        assert not world.ask(1)
        answer = world.envoy.get("/", {"x-user": "alice", "x-tokens": "1"})
        assert answer.headers["x-ratelimit-remaining"] == "0"


def test_ratelimit_s_own_environment_holds_it_too(tmp_path: Path) -> None:
    """Rules as they are there, without a word about overdraft."""
    rules = RULES.replace("      overdraft: true\n", "")
    with gateway(tmp_path, rules, HEADGATE_COMPAT="ratelimit") as world:
        assert world.ask(999)
        assert world.ask(50)
        assert not world.ask(1)


def test_without_overdraft_a_cost_that_does_not_fit_is_not_charged(tmp_path: Path) -> None:
    """What the field is for: callers are let in for ever, because their costs never fit."""
    rules = RULES.replace("overdraft: true", "overdraft: false")
    with gateway(tmp_path, rules) as world:
        assert world.ask(999)
        assert [world.ask(50) for _ in range(3)] == [True] * 3


def test_the_rules_are_good() -> None:
    checked = run("rules", "check", str(TOKENS / "rules"))
    assert checked.returncode == 0, checked.stderr


def test_envoy_accepts_the_file_as_it_is(tmp_path: Path) -> None:
    done = validate(TOKENS / "envoy.yaml", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((TOKENS / "kubernetes").glob("*.yaml")), ids=lambda path: path.stem)
def test_what_the_kubernetes_examples_add_to_envoy_is_accepted(path: Path, tmp_path: Path) -> None:
    """Their patches are put where the control plane would put them, and Envoy is asked."""
    spec = yaml.safe_load(path.read_text())["spec"]
    if path.stem == "istio":
        filter_, cluster = [patch["patch"]["value"] for patch in spec["configPatches"]]
    else:
        cluster, filter_ = [patch["operation"]["value"] for patch in spec["jsonPatches"]]
    config = http_config(routes=[route("/")], headgate=["127.0.0.1:1"])
    front = config["static_resources"]["listeners"][0]
    front["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0] = filter_
    complete = tmp_path / "envoy.yaml"
    complete.write_text(yaml.safe_dump(static([front, backend_listener()], [backend_cluster(), cluster])))
    done = validate(complete, tmp_path)
    assert done.returncode == 0, done.stderr
    look, late = filter_["typed_config"]["rate_limits"]
    assert (look["hits_addend"], late["apply_on_stream_done"]) == ({"number": 0}, True)
