"""How exactly a region keeps a limit: real processes, measured against one perfect limiter.

    python -m tests.accuracy.measure [--quick]

Four nodes over three Redis shards get requests at three times the limit, at random times
and on random nodes. Every admission is then measured as the algorithm itself measures: at
no admission may the count be above the limit plus `floor(precision × limit)`. The same
requests given to one perfect limiter say how many could have been admitted.
"""

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from headgate.limiter.algorithm import OVER
from headgate.limiter.decision import ALGORITHMS
from headgate.limiter.limit import DEFAULT_PRECISION_MILLIONTHS, Algorithm, Limit, Unit
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from benchmarks import load
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import redis_shards, shards_url

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
NODES = 4
SHARDS = 3
DEADLINE_MS = 1_000
"""Raised, so that a slow machine does not turn a test of counting into one of failures."""
BY_POLICY = r'^headgate_decisions_total{.*path="degraded_\w+".*} (\S+)$'


@dataclass(frozen=True)
class Case:
    """One limit under one load."""

    requests: int
    window_s: int
    algorithm: Algorithm = Algorithm.SLIDING_WINDOW
    load: float = 3.0
    exact: bool = False

    @property
    def name(self) -> str:
        return f"{self.algorithm.value}-{self.requests}-{self.window_s}s-x{self.load:g}{'-exact' if self.exact else ''}"

    @property
    def limit(self) -> Limit:
        return Limit(
            self.requests,
            Unit.SECOND,
            self.window_s,
            algorithm=self.algorithm,
            burst=self.requests if self.algorithm is Algorithm.GCRA else 0,
            precision_millionths=0 if self.exact else DEFAULT_PRECISION_MILLIONTHS,
        )

    def rule(self) -> str:
        fields = f"unit: second, unit_multiplier: {self.window_s}, requests_per_unit: {self.requests}"
        fields += f", algorithm: {self.algorithm.value}" + (", precision: 0" if self.exact else "")
        return f"- key: {self.name}\n  rate_limit: {{{fields}}}\n"


@dataclass(frozen=True)
class Answered:
    """One answered request: when, and for an admission also the time of the decision by the shard's clock."""

    received_ms: int
    admitted: bool
    decided_ms: int


@dataclass(frozen=True)
class Result:
    case: Case
    offered: int
    admitted: int
    perfect: int
    worst: int
    failed: int
    by_policy: int
    """Decisions without the origin: then the machine was too busy for a test of counting."""

    @property
    def bound(self) -> int:
        return self.case.requests + self.case.limit.precision

    @property
    def wanted_share(self) -> float:
        """Under the limit nothing is denied that a perfect limiter would admit."""
        return 0.98 if self.case.load >= 1 else 0.999

    @property
    def enough(self) -> bool:
        """Whether less than one whole request lacks of that share."""
        return self.admitted + 1 > self.wanted_share * self.perfect

    @property
    def share(self) -> float:
        return self.admitted / self.perfect if self.perfect else 1.0

    def row(self) -> str:
        over = f"{max(0, self.worst - self.case.requests)} of {self.case.limit.precision}"
        return (
            f"| {self.case.algorithm.value}{', precision 0' if self.case.exact else ''} | {self.case.requests:,} "
            f"| {self.case.window_s} s | {self.case.load:g} × | {self.offered:,} | {self.admitted:,} "
            f"| {100 * self.share:.1f}% | {over} |"
        )


HEADER = (
    "| algorithm | limit | window | load | offered | admitted | of a perfect limiter's | most over the limit |\n"
    "|---|---|---|---|---|---|---|---|"
)

FULL = [
    Case(requests, window_s, algorithm)
    for algorithm in (Algorithm.SLIDING_WINDOW, Algorithm.GCRA)
    for requests, window_s in ((10, 2), (10, 10), (100, 2), (100, 10), (1000, 2), (1000, 10), (20_000, 10))
] + [Case(100, 2, exact=True), Case(1000, 2, exact=True), Case(1000, 2, load=0.9), Case(1000, 10, load=0.9)]

QUICK = [Case(10, 2), Case(100, 2), Case(1000, 2), Case(100, 2, Algorithm.GCRA), Case(100, 2, exact=True)]


@contextmanager
def region(cases: list[Case]) -> Iterator[list[Headgate]]:
    """Real nodes over real shards."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        rules = write_rules(directory / "rules", "domain: accuracy\ndescriptors:\n" + "".join(c.rule() for c in cases))
        url = shards_url(stack.enter_context(redis_shards(SHARDS)))
        options = ("--origin", url, "--exact-reset", "true", "--origin-deadline-ms", str(DEADLINE_MS))
        yield [stack.enter_context(serve(rules, *options)) for _ in range(NODES)]


def request(case: Case, value: str) -> bytes:
    entry = RateLimitDescriptor.Entry(key=case.name, value=value)
    return RateLimitRequest(domain="accuracy", descriptors=[RateLimitDescriptor(entries=[entry])]).SerializeToString()


def by_policy(nodes: list[Headgate]) -> int:
    """Decisions that were made without the origin, which took too long."""
    found = [re.findall(BY_POLICY, node.get("/metrics").body.decode(), re.MULTILINE) for node in nodes]
    return sum(int(float(count)) for counts in found for count in counts)


def measure(case: Case, nodes: list[Headgate], *, windows: float, value: str = "all", seed: int = 1) -> Result:
    log: list[Answered] = []
    before = by_policy(nodes)

    def answered(number: int, message: bytes | None) -> None:
        if message is not None:
            log.append(read(case, RateLimitResponse.FromString(message), time.time_ns() // 1_000_000))

    payload = request(case, value)
    outcome = load.run_paced(
        [node.grpc for node in nodes],
        METHOD,
        lambda number: payload,
        per_s=case.requests / case.window_s * case.load,
        seconds=windows * case.window_s,
        chooser=random.Random(seed),
        on_answer=answered,
    )
    admitted = [answer for answer in log if answer.admitted]
    worst = worst_bucket(case, admitted) if case.algorithm is Algorithm.GCRA else worst_window(case, admitted)
    failed = outcome.failures + outcome.unanswered
    return Result(case, len(log), len(admitted), perfect(case, log), worst, failed, by_policy(nodes) - before)


def read(case: Case, response: RateLimitResponse, received_ms: int) -> Answered:
    """An admission says how long its window still lasts: that gives its window, and its time in there, exactly."""
    status = response.statuses[0]
    window_ms = case.window_s * 1000
    left_ms = status.duration_until_reset.seconds * 1000 + status.duration_until_reset.nanos // 1_000_000
    end_ms = round((received_ms + left_ms) / window_ms) * window_ms
    return Answered(received_ms, response.overall_code == RateLimitResponse.OK, min(end_ms - left_ms, end_ms - 1))


def worst_window(case: Case, admitted: list[Answered]) -> int:
    window_ms, worst = case.window_s * 1000, 0
    counts: Counter[int] = Counter()
    for answer in sorted(admitted, key=lambda answer: answer.decided_ms):
        sequence, elapsed_ms = divmod(answer.decided_ms, window_ms)
        counts[sequence] += 1
        previous = counts[sequence - 1] if case.algorithm is Algorithm.SLIDING_WINDOW else 0
        worst = max(worst, counts[sequence] + previous * (window_ms - elapsed_ms) // window_ms)
    return worst


def worst_bucket(case: Case, admitted: list[Answered]) -> int:
    """The most that was ever in a bucket that leaks at the rate."""
    per_ms = case.requests / (case.window_s * 1000)
    level, worst, last_ms = 0.0, 0.0, 0
    for answer in sorted(admitted, key=lambda answer: answer.received_ms):
        level = max(0.0, level - (answer.received_ms - last_ms) * per_ms) + 1
        last_ms = answer.received_ms
        worst = max(worst, level)
    return int(worst)


def perfect(case: Case, log: list[Answered]) -> int:
    """What one limiter that sees every request would have admitted."""
    limit = case.limit
    algorithm = ALGORITHMS[limit.algorithm]
    ordered = sorted(answer.received_ms for answer in log)
    cell = algorithm.new_counter(b"perfect", limit, ordered[0]) if ordered else None
    return sum(algorithm.take(cell, limit, at_ms, 1) != OVER for at_ms in ordered)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few cases only")
    arguments = parser.parse_args()
    cases = QUICK if arguments.quick else FULL
    good = True
    sys.stdout.write(HEADER + "\n")
    with region(cases) as nodes:
        for case in cases:
            result = measure(case, nodes, windows=5)
            good &= result.worst <= result.bound and result.enough and not result.failed
            sys.stdout.write(result.row() + "\n")
            sys.stdout.flush()
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
