"""Decisions within one process, for programs that import Headgate instead of asking one (`Headgate.local`).

Rules, planner, engine and answers are the server's own; listeners, Redis, other regions, the decision log and the
operators' side are not there. Counts are this process's, and end with it. Nothing here takes a lock or reads a clock of
its own: who has several threads brings a lock.
"""

import json
import os
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse
from headgate_client.wire.headgate.v1 import limits_pb2 as pb

from headgate.clock import Clock, SystemClock
from headgate.endpoint.methods import parsed
from headgate.errors import NotFound, TooLarge
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.pending import PendingAnswer
from headgate.reservations.difference import checked_request, make_up
from headgate.rules.compiling import compile_source
from headgate.rules.directory import load_directory
from headgate.rules.pace import Pace
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import SourceFile, source_of

MAX_CELLS: Final = 1_000_000
"""Counters, as many as a server has at most."""
SWEPT: Final = 4
"""Counters that each question looks at for expired ones: more than it can make, and there is no other housekeeping."""
MOST_OPEN: Final = 100_000
"""Reservations that are kept: open ones, and settled ones until room is needed or their time is over."""
DEFAULT_TTL_MS: Final = 600_000

RulesGiven = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A file or a directory of rules; or what such files hold, one mapping for each."""


def load_rules(given: RulesGiven) -> RuleSet:
    """Read, check and compile rules. Raises RulesError with every problem."""
    if isinstance(given, str | os.PathLike):
        return load_directory(os.fspath(given))
    files = [given] if isinstance(given, Mapping) else given
    source = source_of([_as_file(number, one) for number, one in enumerate(files)])
    return compile_source(source, Pace(SystemClock()), merge_domains=False)


def _as_file(number: int, rules: Mapping[str, Any]) -> SourceFile:
    """JSON is YAML: the mapping goes the way that every rules file goes."""
    name = f"rules[{number}]"
    return SourceFile(name, json.dumps(rules, ensure_ascii=False, indent=1).encode(), name)


def _at_once(answer: bytes | PendingAnswer) -> bytes:
    """Return the answer: an engine without a region keeps nobody waiting."""
    if not isinstance(answer, bytes):
        raise TypeError("an engine of one process left a request waiting")
    return answer


@dataclass(slots=True)
class _Reserved:
    """An estimate that was charged, and what it came to."""

    request: bytes
    charged_ms: int
    expires_ms: int
    actual: int | None = None


class EmbeddedServer:
    """Answers the messages that a server answers, at once."""

    def __init__(self, rules: RuleSet, clock: Clock, random: random.Random) -> None:
        self.domains = tuple(rules.domains)
        self._clock = clock
        self._random = random
        self._engine = Engine(clock, max_cells=MAX_CELLS)
        self._handler = RateLimitHandler(
            rules=lambda: rules, engine=self._engine, random=random, settings=AnswerSettings()
        )
        self._reserved: OrderedDict[str, _Reserved] = OrderedDict()

    def answer(self, payload: bytes) -> bytes:
        """Decide a RateLimitRequest. Raises RequestError."""
        self._engine.sweep(SWEPT)
        return _at_once(self._handler.answer(payload))

    def reserve(self, payload: bytes) -> bytes:
        """Decide a ReserveRequest: its estimate is charged if it fits. Raises RequestError."""
        request = parsed(pb.ReserveRequest, payload)
        asked, now_ms = checked_request(request.request), self._clock.now_ms()
        self._make_room(now_ms)
        charges = self._handler.charges(asked)
        decided = _at_once(self._handler.reserve(asked))
        response = pb.ReserveResponse(decision=RateLimitResponse.FromString(decided))
        if charges and response.decision.overall_code == RateLimitResponse.OK:
            response.id = self._random.randbytes(16).hex()
            self._reserved[response.id] = _Reserved(asked, now_ms, now_ms + (request.ttl_ms or DEFAULT_TTL_MS))
        return response.SerializeToString()

    def settle(self, payload: bytes) -> bytes:
        """Decide a SettleRequest: the difference is made up, once. Raises RequestError."""
        request, now_ms = parsed(pb.SettleRequest, payload), self._clock.now_ms()
        reserved = self._reserved.get(request.id)
        if reserved is None or reserved.expires_ms <= now_ms:
            raise NotFound("id: unknown, or expired: its estimate stands")
        first = reserved.actual is None
        if first:
            reserved.actual = request.actual
            make_up(self._handler, reserved.request, request.actual, charged_ms=reserved.charged_ms, now_ms=now_ms)
        return pb.SettleResponse(settled=first, actual=reserved.actual or 0).SerializeToString()

    def _make_room(self, now_ms: int) -> None:
        """Forget the oldest reservations that nobody can settle any more. Raises TooLarge."""
        while self._reserved:
            oldest = next(iter(self._reserved.values()))
            if oldest.expires_ms > now_ms and (oldest.actual is None or len(self._reserved) < MOST_OPEN):
                break
            self._reserved.popitem(last=False)
        if len(self._reserved) >= MOST_OPEN:
            raise TooLarge(
                f"{MOST_OPEN} reservations are neither settled nor expired: settle them, or use a shorter ttl"
            )
