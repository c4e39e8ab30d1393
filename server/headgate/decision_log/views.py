"""Views of the decision log for the page at `/`: `GET /decisions` and `GET /explain`.

Both read what is on disk, in one thread, one after the other (reading.py): no decision waits for them. Of several
workers any one can tell all, because they share the data directory.
"""

import json
import string
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from headgate.clock import Clock
from headgate.decision_log.batch import RecordFilter
from headgate.decision_log.explain.causes import causes_of
from headgate.decision_log.explain.explanation import explain
from headgate.decision_log.explain.history import EventHistory
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.explain.sentences import reason_of
from headgate.decision_log.follower import Follower
from headgate.decision_log.reader import LogView
from headgate.decision_log.reading import LogReading, Patience
from headgate.decision_log.schema import DecisionRecord, Event
from headgate.errors import BadRequest, NotFound
from headgate.limiter.decision import Entries

RECENT: Final = 50
"""Denials that are shown, the newest."""
FIRST_LOOK_MS: Final = 300_000
"""Age of the oldest decision of the first look; from then on there is what was logged since."""
WINDOW_MS: Final = 3_600_000
"""Distance from its time within which an explanation looks, unless told otherwise."""
LONGEST_WINDOW_MS: Final = 86_400_000
MAX_ENTRIES: Final = 64
NO_LOG: Final = "this node keeps no decision log: it needs a data_dir, and decision_log: true"


class DecisionViews:
    """The decision log of a data directory, for readers of the page."""

    def __init__(self, directory: Path | None, clock: Clock) -> None:
        """`directory`: None where there is no log to show."""
        self._directory = directory
        self._clock = clock
        self._follower: Follower | None = None
        self._denied: OrderedDict[tuple[int, int], DecisionRecord] = OrderedDict()
        """Denials by decision and key, the oldest first."""
        self._reading = LogReading("headgate-views")

    async def recent(self) -> Mapping[str, Any]:
        """The last denials, the newest first."""
        if self._directory is not None:
            await self._reading.run(partial(self._look, self._directory))
        denied = [_denial(record) for record in reversed(self._denied.values())]
        return {"logged": self._directory is not None, "decisions": denied}

    async def explain(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """Explain the last request with this descriptor, or of this id. Raises BadRequest, NotFound."""
        if self._directory is None:
            raise NotFound(NO_LOG)
        question = _question(query, self._clock.now_ms())
        return await self._reading.run(partial(_explain, self._directory, question))

    def close(self) -> None:
        """End what is being read."""
        self._reading.close()

    def _look(self, directory: Path, patience: Patience) -> None:
        found: Iterable[DecisionRecord | Event]
        if self._follower is None:
            self._follower = Follower(directory)
            now_ms = self._clock.now_ms()
            view = LogView([directory], stats=patience.stats())
            found = view.decisions(RecordFilter(since_ms=now_ms - FIRST_LOOK_MS), now_ms)
        else:
            found = self._follower.read()
        for record in found:
            if isinstance(record, DecisionRecord) and not record.allowed and record.over:
                self._denied[record.number, record.key] = record
        while len(self._denied) > RECENT:
            self._denied.popitem(last=False)


_NOTHING_ELSE: Final = EventHistory(LogView([]), [], ())
"""A short reason is told by the record alone; what went on besides is the explanation's."""


def _denial(record: DecisionRecord) -> dict[str, Any]:
    return {
        "time_ms": record.time_ms,
        "id": record.id,
        "domain": record.rule.domain,
        "rule": record.rule.text,
        "entries": list(record.entries),
        "key": ", ".join([f"{name}={value}" for name, value in record.entries]) or _caller(record),
        "path": record.path,
        "reason": reason_of(causes_of(record, [record], _NOTHING_ELSE)),
        "counted": record.counted,
        "limit": record.capacity,
        "retry_ms": record.wait_ms,
    }


def _caller(record: DecisionRecord) -> str:
    """Name the caller where the log has no values: by the hash that `headgate tail` and `explain` show too."""
    return f"caller {record.descriptor_hash:016x}"


def _explain(directory: Path, question: DecisionQuestion, patience: Patience) -> dict[str, Any]:
    view = LogView([directory], stats=patience.stats())
    return explain(view, question).to_json()


def _question(query: Mapping[str, str], now_ms: int) -> DecisionQuestion:
    if "id" in query:
        return DecisionQuestion(at_ms=now_ms, number=_number(query["id"]))
    domain = query.get("domain", "")
    if not domain:
        raise BadRequest("domain: the domain of the request")
    return DecisionQuestion(
        domain,
        _entries(query.get("entries", "")),
        _whole("at_ms", query.get("at_ms"), now_ms),
        _window_ms(query.get("window_ms")),
    )


def _window_ms(text: str | None) -> int:
    window_ms = _whole("window_ms", text, WINDOW_MS)
    if window_ms > LONGEST_WINDOW_MS:
        raise BadRequest(f"window_ms: at most {LONGEST_WINDOW_MS}, a day; got {window_ms}")
    return window_ms


def _number(text: str) -> int:
    if len(text) > 16 or any(sign not in string.hexdigits for sign in text) or not text:
        raise BadRequest("id: a decision's id, 16 hex digits")
    return int(text, 16)


def _entries(text: str) -> Entries:
    expected = BadRequest('entries: the descriptor as JSON, [["key", "value"], …]')
    try:
        pairs = json.loads(text)
    except ValueError:
        raise expected from None
    if not isinstance(pairs, list) or not 0 < len(pairs) <= MAX_ENTRIES:
        raise expected
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise expected
    return tuple([(key, value) for key, value in pairs])


def _whole(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 15:
        raise BadRequest(f"{name}: milliseconds, a whole number; got {text[:40]!r}")
    return int(text)
