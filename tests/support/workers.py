"""`headgate serve --workers N` in tests, and callers with connections of their own."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from prometheus_client.parser import text_string_to_metric_families

from tests.support.headgate import Answer, Headgate, serve
from tests.support.waiting import PATIENCE_S, wait_until

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@contextlib.contextmanager
def serve_workers(
    rules: Path,
    redis_url: str,
    workers: int,
    *flags: str,
    drain_s: float = 0,
    environ: Mapping[str, str] | None = None,
    **addresses: str,
) -> Iterator[Headgate]:
    """Ready, and stopped at the end in good order.

    Requests wait long for the origin, so that a slow machine does not turn this into a fault test.
    """
    more = ("--workers", str(workers), "--origin", redis_url, "--origin-deadline-ms", "1000", *flags)
    with serve(rules, *more, drain_s=drain_s, environ=environ, **addresses) as headgate:
        yield headgate
        if headgate.process.poll() is None:
            assert headgate.stop() == 0


def request(key: str, value: str = "x") -> bytes:
    message = RateLimitRequest(domain="edge")
    message.descriptors.add().entries.add(key=key, value=value)
    return message.SerializeToString()


class Caller:
    """One caller on one connection, which it shares with nobody in this process."""

    def __init__(self, address: str) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100)]
        self._channel = grpc.insecure_channel(address, options=options)
        self._call: Callable[..., bytes] = self._channel.unary_unary(METHOD)

    def admitted(self, payload: bytes) -> bool:
        answer = RateLimitResponse.FromString(self._call(payload, timeout=PATIENCE_S, wait_for_ready=False))
        return answer.overall_code == RateLimitResponse.OK

    def close(self) -> None:
        self._channel.close()


@contextlib.contextmanager
def callers(address: str, number: int) -> Iterator[list[Caller]]:
    everybody = [Caller(address) for _ in range(number)]
    try:
        yield everybody
    finally:
        for caller in everybody:
            caller.close()


def count_admitted(everybody: list[Caller], calls_each: int, payload: bytes) -> int:
    """All call at once, each one call after the other."""

    def go(caller: Caller) -> int:
        return sum(caller.admitted(payload) for _ in range(calls_each))

    with ThreadPoolExecutor(len(everybody)) as pool:
        return sum(pool.map(go, everybody))


class Load:
    """Callers that go on until told to leave; every failure is noted, by caller."""

    def __init__(self, everybody: list[Caller]) -> None:
        self.answered = [0] * len(everybody)
        self.failed: list[list[str]] = [[] for _ in everybody]
        self._leave = threading.Event()
        self._threads = [
            threading.Thread(target=self._go, args=(index, caller)) for index, caller in enumerate(everybody)
        ]

    def _go(self, index: int, caller: Caller) -> None:
        payload = request("bulk", str(index))
        # A pause after each call: callers that take all of the machine leave nothing to start a worker with.
        while not self._leave.wait(0.005):
            try:
                caller.admitted(payload)
                self.answered[index] += 1
            except grpc.RpcError as error:
                self.failed[index].append(str(error))

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        self._leave.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


def scrape(headgate: Headgate) -> Samples:
    """Every sample, as a Prometheus parser reads it; a family or a series that is there twice is an error."""
    answer = headgate.get("/metrics")
    assert answer.status == 200
    samples: Samples = {}
    families = list(text_string_to_metric_families(answer.body.decode()))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation
        assert family.type != "unknown"
        for sample in family.samples:
            series = (sample.name, frozenset(sample.labels.items()))
            assert series not in samples
            samples[series] = sample.value
    return samples


def scrape_all(headgate: Headgate) -> Samples:
    """With every worker in it: on a busy machine one may be too late for the supervisor's second."""
    samples: Samples = {}

    def complete() -> bool:
        samples.clear()
        samples.update(scrape(headgate))
        asked = by_worker(samples, "headgate_worker_restarts_total")
        return bool(asked) and by_worker(samples, "headgate_grpc_calls_total").keys() == asked.keys()

    wait_until(complete, "figures of every worker")
    return samples


def decided_by_policy(samples: Samples) -> float:
    """Decisions without the origin: it took too long."""
    return sum(
        value
        for (sample, labels), value in samples.items()
        if sample == "headgate_decisions_total" and dict(labels)["path"].startswith("degraded")
    )


def by_worker(samples: Samples, name: str) -> dict[str, float]:
    """One metric, summed over all labels but `worker`."""
    totals: dict[str, float] = {}
    for (sample, labels), value in samples.items():
        worker = dict(labels).get("worker")
        if sample == name and worker is not None:
            totals[worker] = totals.get(worker, 0) + value
    return totals


def worker_of(headgate: Headgate, caller: Caller) -> str:
    """Who has the caller's connection: the worker whose count of calls moves."""
    before = by_worker(scrape_all(headgate), "headgate_grpc_calls_total")
    caller.admitted(request("bulk"))
    moved: list[str] = []

    def has_moved() -> bool:
        # Metrics are kept for a second, by the worker and by who asks it: what comes may be of before the call.
        after = by_worker(scrape_all(headgate), "headgate_grpc_calls_total")
        moved[:] = [name for name in after if after[name] > before[name]]
        return bool(moved)

    wait_until(has_moved, "the call to be counted")
    (worker,) = moved
    return worker


def when_ready(headgate: Headgate) -> Answer:
    """Its readiness, once all workers have answered in time."""
    answers = []

    def ready() -> bool:
        answers.append(headgate.get("/readyz"))
        return answers[-1].status == 200

    wait_until(ready, "all workers to be ready")
    return answers[-1]


def described(headgate: Headgate) -> list[dict[str, Any]]:
    workers: list[dict[str, Any]] = headgate.get("/readyz").json()["workers"]
    return workers


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def loading(supervisor: int) -> list[int]:
    """Its workers that have begun to load what they need, and perhaps more."""
    children = _read(f"/proc/{supervisor}/task/{supervisor}/children").split()
    return [int(pid) for pid in children if "cygrpc" in _read(f"/proc/{pid}/maps")]


def _read(path: str) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(path).read_text()
    return ""
