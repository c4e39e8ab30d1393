"""`headgate.v1.Decisions`: a node's decision log, over the admin side, for `headgate explain` and `headgate tail`.

It reads what is on disk, in a thread of its own, and changes nothing: no decision waits for it. Of several workers the
first one's listener reads the log of all, because they share the data directory. Answers are bounded in lines and
bytes.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from headgate import plain_json
from headgate.decision_log.batch import RecordFilter
from headgate.decision_log.follower import Follower
from headgate.decision_log.json_lines import entry_to_json
from headgate.decision_log.reader import LogView
from headgate.decision_log.reading import LogReading, Patience
from headgate.decision_log.rule_contents import load_content
from headgate.decision_log.schema import DecisionRecord, Entry, Event
from headgate.endpoint.admins import AdminMethod, Operator, admin_method
from headgate.errors import BadRequest, NotReady
from headgate.v1 import decisions_pb2 as pb

SERVICE: Final = "headgate.v1.Decisions"
MAX_LINES: Final = 5_000
"""Records of an answer, and events; the newest."""
MAX_RULES_BYTES: Final = 16 * 1024 * 1024
"""Size of the rule sets in an answer."""
TAIL_KEPT: Final = 10_000
"""Lines kept for those who follow."""
TAIL_LINES: Final = 2_000
"""Lines of one answer to them."""
LOOK_EVERY_S: Final = 0.1
MAX_WAIT_S: Final = 10.0


class DecisionsService:
    """The methods of the service. See the module."""

    def __init__(self, data_dir: Path | None) -> None:
        """`data_dir`: None where there is no log to show."""
        self._data_dir = data_dir
        self._follower: Follower | None = None
        self._lines: deque[str] = deque(maxlen=TAIL_KEPT)
        self._last = 0
        """The number of the newest line."""
        self._reading = LogReading("headgate-decisions")
        self._looking = asyncio.Lock()

    def methods(self) -> Mapping[str, AdminMethod]:
        """The methods by path."""
        return {
            f"/{SERVICE}/Find": admin_method(pb.FindRequest, self.find),
            f"/{SERVICE}/Tail": admin_method(pb.TailRequest, self.tail),
        }

    async def find(self, request: pb.FindRequest, _: Operator) -> pb.FindResponse:
        """Find the lines that an explanation is made from."""
        if not request.who and not request.number:
            raise BadRequest("give `who` or `number`")
        return await self._reading.run(partial(self._find, self._directory(), request))

    async def tail(self, request: pb.TailRequest, _: Operator) -> pb.TailResponse:
        """Return lines logged since `cursor`; wait for some for a while."""
        directory = self._directory()
        deadline_s = time.monotonic() + min(request.wait_ms / 1000, MAX_WAIT_S)
        await self._look(directory)
        # Numbers of lines begin at 1, and of another run they may be beyond ours: then begin now.
        cursor = request.cursor - 1 if 0 < request.cursor <= self._last + 1 else self._last
        while cursor == self._last and time.monotonic() < deadline_s:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look(directory)
        missed = max(0, self._last - len(self._lines) - cursor)
        new = list(self._lines)[len(self._lines) - (self._last - cursor - missed) :] if cursor < self._last else []
        told = new[:TAIL_LINES]
        return pb.TailResponse(cursor=cursor + missed + len(told) + 1, lines=told, missed=missed)

    async def _look(self, directory: Path) -> None:
        """Look for new lines, for all who follow: one of them at a time."""
        async with self._looking:
            await self._reading.run(partial(self._follow, directory))

    def _follow(self, directory: Path, _: Patience) -> None:
        if self._follower is None:
            self._follower = Follower(directory)
        found = self._follower.read()
        self._lines.extend(_lines(found))
        self._last += len(found)

    def close(self) -> None:
        """End what is being read."""
        self._reading.close()

    def _find(self, directory: Path, request: pb.FindRequest, patience: Patience) -> pb.FindResponse:
        view = LogView([directory], stats=patience.stats())
        want = RecordFilter(
            descriptor_hashes=frozenset((request.who,) if request.who else ()),
            numbers=frozenset((request.number,) if request.number else ()),
            since_ms=request.since_ms,
            until_ms=request.until_ms or RecordFilter().until_ms,
        )
        near_ms = (want.since_ms + want.until_ms) // 2 if request.until_ms else int(time.time() * 1000)
        records = view.decisions(want, near_ms)
        # With them, the other limits that their requests met.
        numbers = frozenset(record.number for record in records[-MAX_LINES:])
        records = view.decisions(RecordFilter(numbers=numbers), near_ms) if numbers else []
        events = view.events()
        answer = pb.FindResponse(skipped_bytes=view.stats.skipped_bytes)
        for covered in view.coverage():
            answer.first_ms, answer.last_ms = covered.first_ms, covered.last_ms
        answer.more = len(records) > MAX_LINES or len(events) > MAX_LINES or view.stats.left_blocks > 0
        answer.lines.extend(_lines([*records[-MAX_LINES:], *events[-MAX_LINES:]]))
        answer.rules.extend(_rule_sets(directory, records, events))
        return answer

    def _directory(self) -> Path:
        if self._data_dir is None:
            raise NotReady("this node keeps no decision log: it needs a data_dir, and decision_log: true")
        return self._data_dir


def _rule_sets(directory: Path, records: Iterable[DecisionRecord], events: Iterable[Event]) -> list[pb.RuleSet]:
    """The contents of the versions that decided, then of all others, the newest first."""
    versions = [str(event.fields.get("version", "")) for event in events if event.kind == "rules_in_force"]
    wanted = dict.fromkeys([*(record.version for record in records), *reversed(versions)])
    found: list[pb.RuleSet] = []
    left = MAX_RULES_BYTES
    for digest in dict.fromkeys(version.partition("-")[2] for version in wanted):
        content = load_content(directory, digest)
        if content is None:
            continue
        files = [pb.RuleFile(name=name, data=data) for name, data in content[0]]
        left -= sum(len(file.data) for file in files)
        if left < 0:
            break
        found.append(pb.RuleSet(digest=digest, merge_domains=content[1], files=files))
    return found


def _lines(entries: Iterable[Entry]) -> list[str]:
    return [plain_json.dumps(entry_to_json(entry)) for entry in entries]
