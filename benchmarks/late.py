"""What a decision costs with and without `overdraft` and `refund`, in one run: `.venv/bin/python benchmarks/late.py`.

The same handler and engine, the same request; CPU time per decision, the median of several rounds in turn. A hit on a
rule without the field takes the way that it always took: which one is chosen once, with the plan.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from headgate.clock import SystemClock
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.rules.directory import load_directory
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

ROUNDS = 15
DECISIONS = 20_000
RULES = """
domain: edge
descriptors:
- key: plain
  rate_limit: {unit: year, requests_per_unit: 4000000000}
- key: late
  rate_limit: {unit: year, requests_per_unit: 4000000000, overdraft: true}
- key: back
  rate_limit: {unit: year, requests_per_unit: 4000000000, refund: true}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "edge.yaml").write_text(RULES)
        rules = load_directory(Path(directory))
    handler = RateLimitHandler(
        rules=lambda: rules,
        engine=Engine(SystemClock(), max_cells=1000),
        random=random.Random(1),
        settings=AnswerSettings(),
    )
    kinds = {
        "plain": _request("plain", 1),
        "on refund: true": _request("back", 1),
        "refund": _request("back", 1, back=True),
        "late cost": _request("late", 1),
        "look": _request("late", 0),
    }
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind, payload in kinds.items():
            taken[kind].append(_measure(handler, payload))
    plain = statistics.median(taken["plain"])
    for kind, times in taken.items():
        ns = statistics.median(times)
        sys.stdout.write(f"{kind:15} {ns:7.0f} ns of CPU per decision, {ns / plain:.2f} of a plain one\n")


def _request(key: str, hits: int, *, back: bool = False) -> bytes:
    descriptor = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=key, value="x")])
    descriptor.hits_addend.value = hits
    descriptor.is_negative_hits = back
    return RateLimitRequest(domain="edge", descriptors=[descriptor]).SerializeToString()


def _measure(handler: RateLimitHandler, payload: bytes) -> float:
    began = time.process_time_ns()
    for _ in range(DECISIONS):
        handler.answer(payload)
    return (time.process_time_ns() - began) / DECISIONS


if __name__ == "__main__":
    main()
