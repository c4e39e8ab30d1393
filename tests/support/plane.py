"""Real planes for tests: a root, relays and nodes as processes, and the commands that operators type."""

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from headgate.plane.codec import WATCH
from headgate.v1 import rules_pb2 as pb

from tests.support.headgate import FREE_PORTS, HEADGATE, Headgate, run, start

TOKENS = "ops=ops-token\nnode=node-token\nbilling=billing-token\n"


def free_address() -> str:
    """An address that a process can have again after a restart; another test may not ask for it meanwhile."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@dataclass
class PlaneSite:
    """The files of one plane, and its processes."""

    directory: Path
    rights: str = ""
    tokens: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "tokens").write_text(TOKENS)
        for line in TOKENS.splitlines():
            name = line.partition("=")[0]
            self.tokens[name] = self.directory / f"{name}.token"
            self.tokens[name].write_text(line + "\n")

    @contextlib.contextmanager
    def plane(self, name: str, address: str, *arguments: str) -> Iterator[Headgate]:
        """A root, or with `--upstream` a relay, that listens."""
        rights = []
        if self.rights:
            (self.directory / "rights").write_text(self.rights)
            rights = ["--plane-rights-file", str(self.directory / "rights")]
        with start(
            "plane",
            *("--listen", address, "--store", str(self.directory / name), "--node-id", name),
            *("--token-file", str(self.directory / "tokens")),
            *("--http", "127.0.0.1:0", "--plane-token-file", str(self.tokens["node"])),
            *rights,
            *arguments,
        ) as headgate:
            headgate.http = headgate.wait_for_event("plane_serving")["http"]
            yield headgate

    @contextlib.contextmanager
    def node(
        self, name: str, addresses: str, *arguments: str, ready: bool = True, program: Sequence[str] = HEADGATE
    ) -> Iterator[Headgate]:
        """A node that follows a plane."""
        with start(
            "serve",
            *("--rules", f"plane://{addresses}", "--plane-token-file", str(self.tokens["node"])),
            *("--data-dir", str(self.directory / name), "--node-id", name, "--drain-s", "0"),
            *FREE_PORTS,
            *arguments,
            program=program,
        ) as headgate:
            yield headgate.wait_ready() if ready else headgate

    def rules(self, address: str, *arguments: str, who: str = "ops") -> tuple[int, str]:
        """Exit status and output of `headgate rules …`, asked of a plane."""
        done = run("rules", *arguments, "--plane", address, "--token-file", str(self.tokens[who]))
        return done.returncode, done.stdout + done.stderr

    def status(self, address: str) -> Any:
        """Standing of a plane, whether every follower has its last entry in force or not."""
        status, output = self.rules(address, "status", "--json")
        assert status in (0, 1), output
        return json.loads(output)

    def rules_json(self, address: str, *arguments: str) -> Any:
        status, output = self.rules(address, *arguments, "--json")
        assert status == 0, output
        return json.loads(output)


def limits(headgate: Headgate) -> dict[str, int]:
    """Requests per unit by rule, as a node has them in force; -1 where they are not limited."""
    rules = headgate.get("/rules").json()["rules"]
    return {f"{rule['domain']}:{rule['rule']}": rule["limit"].get("requests_per_unit", -1) for rule in rules}


class CountingFollower:
    """A node that follows a root, takes whatever it is sent, and reports counts of rollouts that a test says."""

    def __init__(self, address: str, name: str = "counting") -> None:
        self._name = name
        self._says: queue.Queue[pb.WatchRequest | None] = queue.Queue()
        self._has = pb.Position()
        self.counts: dict[str, int] = {}
        """Counts of every rollout from its beginning on, as `RolloutCounts` has them."""
        self._rollouts: dict[str, str] = {}
        self._channel = grpc.insecure_channel(address)
        self._says.put(pb.WatchRequest(hello=pb.Hello(name=name, region="eu", software="test")))
        watch = self._channel.stream_stream(WATCH, pb.WatchRequest.SerializeToString, pb.WatchResponse.FromString)
        self._stream = watch(iter(self._says.get, None), metadata=(("authorization", "Bearer node-token"),))
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "CountingFollower":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._says.put(None)
        self._stream.cancel()
        self._thread.join()
        self._channel.close()

    def _follow(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for said in self._stream:
                for change in (*said.entry.changes, *said.part.rules):
                    if change.kind == pb.RECORD_KIND_STAGED and not change.path:
                        self._rollouts[change.domain] = json.loads(change.rule or b"{}").get("rollout", "")
                if said.HasField("entry") or said.part.last:
                    self._has = said.entry.position if said.HasField("entry") else said.part.position
                self._says.put(pb.WatchRequest(report=pb.Report(followers=[self._state()])))

    def _state(self) -> pb.Follower:
        counted = [
            pb.RolloutCounts(domain=domain, rollout=name, **self.counts)
            for domain, name in self._rollouts.items()
            if name
        ]
        return pb.Follower(name=self._name, region="eu", software="test", has=self._has, rollouts=counted)
