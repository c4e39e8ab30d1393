"""The calls of `headgate.v1.Rules` that look and change, each from a message to a message.

Whoever asks has been identified, and may do what its rights say. Every change is in the log with who and why, and in
the process's log too, before it is answered.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.endpoint.admins import AdminMethod, Operator, admin_method
from headgate.errors import BadRequest, Misconfigured
from headgate.plane.codec import (
    SERVICE,
    decode_changes,
    encode_entry,
    encode_follower,
    encode_part,
    encode_path,
    encode_position,
)
from headgate.plane.entry import MAX_WHY_CHARS, LogEntry, RulesPart
from headgate.plane.plane import Changed, Plane
from headgate.plane.rights import RightsFile, may_change, may_read
from headgate.plane.rule_log import Author
from headgate.v1 import rules_pb2 as pb

MOST_HISTORY: Final = 1_000
"""Entries in one answer of the history."""
MOST_DOMAINS_READ: Final = 10_000
MOST_PROBLEMS: Final = 1_000
"""Problems in one answer."""


@dataclass(frozen=True, slots=True)
class RulesService:
    """The methods of the service, but for the stream that followers have."""

    plane: Plane
    rights: RightsFile | None
    logger: FilteringBoundLogger

    def methods(self) -> Mapping[str, AdminMethod]:
        """Return the methods by path."""
        return {
            f"/{SERVICE}/Change": admin_method(pb.ChangeRequest, self.change),
            f"/{SERVICE}/Rollback": admin_method(pb.RollbackRequest, self.rollback),
            f"/{SERVICE}/History": admin_method(pb.HistoryRequest, self.history),
            f"/{SERVICE}/Status": admin_method(pb.StatusRequest, self.status),
        }

    async def change(self, request: pb.ChangeRequest, operator: Operator) -> pb.ChangeResponse:
        """Append one entry with these changes, or none."""
        changes = decode_changes(request.changes)
        may_change(self.rights, operator, {change.domain for change in changes})
        author = self._author(operator, request.why)
        return self._answer(await self.plane.change(changes, author, request.expect), operator, rolled_back=False)

    async def rollback(self, request: pb.RollbackRequest, operator: Operator) -> pb.ChangeResponse:
        """Append what leads back to a version."""
        author, allow = self._author(operator, request.why), partial(may_change, self.rights, operator)
        done = await self.plane.rollback(request.version, author, request.expect, allow)
        return self._answer(done, operator, rolled_back=True)

    async def history(self, request: pb.HistoryRequest, operator: Operator) -> pb.HistoryResponse:
        """Entries of the log, the latest first."""
        may_read(self.rights, operator)
        most = min(request.most or MOST_HISTORY, MOST_HISTORY)
        log = self.plane.log
        entries, first = await self.plane.read(lambda: log.history(request.before, most, request.domain))
        return pb.HistoryResponse(
            entries=[_shown(entry, with_changes=request.with_changes) for entry in entries], first=first
        )

    async def status(self, _: pb.StatusRequest, operator: Operator) -> pb.StatusResponse:
        """The head of the log, and who follows it how far."""
        may_read(self.rights, operator)
        plane, log = self.plane, self.plane.log
        entries, _first = await plane.read(lambda: log.history(0, 1))
        now_ms = plane.clock.now_ms()
        return pb.StatusResponse(
            head=encode_position(log.position),
            head_made_ms=entries[0].made_ms if entries else 0,
            rules=log.rules,
            domains=len(log.domains),
            upstream=plane.upstream,
            fresh_ms=max(0, now_ms - plane.age_ms()),
            followers=map(encode_follower, plane.followers()),
            now_ms=now_ms,
        )

    async def read(self, request: pb.ReadRequest, operator: Operator) -> AsyncIterator[bytes]:
        """The rules of some domains, in parts."""
        may_read(self.rights, operator)
        if len(request.domains) > MOST_DOMAINS_READ:
            raise BadRequest(f"{len(request.domains)} domains, at most {MOST_DOMAINS_READ} are read in one call")
        parts = self.plane.log.parts(list(request.domains))
        while (part := await self.plane.read(partial(_next, parts))) is not None:
            yield encode_part(part).SerializeToString()

    # What the methods share

    def _author(self, operator: Operator, why: str) -> Author:
        if self.plane.upstream:
            raise Misconfigured(f"this is a relay: rules are changed at the root, {self.plane.upstream}")
        if len(why) > MAX_WHY_CHARS:
            raise BadRequest(f"`why` has {len(why)} characters, at most {MAX_WHY_CHARS} are accepted")
        return Author(operator.who, why, self.plane.clock.now_ms())

    def _answer(self, changed: Changed, operator: Operator, *, rolled_back: bool) -> pb.ChangeResponse:
        count = sum(len(entry.changes) for entry in changed.entries)
        for entry in changed.entries:
            # A warning, as every change by hand: it is not to be missed.
            self.logger.warning(
                "rules_rolled_back" if rolled_back else "rules_changed",
                who=operator.who,
                peer=operator.peer,
                why=entry.why,
                index=entry.position.index,
                version=entry.position.version,
                changes=len(entry.changes),
                domains=entry.domains[:20],
            )
        problems = [
            pb.Problem(domain=problem.domain, path=encode_path(problem.path), reason=problem.reason)
            for problem in changed.problems[:MOST_PROBLEMS]
        ]
        return pb.ChangeResponse(position=encode_position(changed.position), changed=count, problems=problems)


def _next(parts: Iterator[RulesPart]) -> RulesPart | None:
    return next(parts, None)


def _shown(entry: LogEntry, *, with_changes: bool) -> pb.LogEntry:
    """An entry as a message; without its changes each domain that it changes is there once."""
    message = encode_entry(entry)
    if not with_changes:
        del message.changes[:]
        message.changes.extend(pb.RuleChange(domain=domain) for domain in entry.domains)
    return message
