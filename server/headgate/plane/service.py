"""The calls of `headgate.v1.Rules` that look and change, each from a message to a message.

Whoever asks has been identified, and may do what its rights say. Every change is in the log with who and why, and in
the process's log too, before it is answered.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.endpoint.admins import AdminMethod, Operator, admin_method
from headgate.errors import BadRequest, Misconfigured
from headgate.limiter.limit import MILLION
from headgate.plane.ages import ages_of
from headgate.plane.codec import (
    SERVICE,
    decode_changes,
    decode_path,
    encode_change,
    encode_entry,
    encode_follower,
    encode_part,
    encode_path,
    encode_position,
)
from headgate.plane.entry import MAX_WHY_CHARS, LogEntry, RecordKind, RuleChange, RulesPart
from headgate.plane.marks import DEFAULT_PLAN, ShadowRecord, StagePlan, without
from headgate.plane.plane import Changed, Plane
from headgate.plane.records import Records
from headgate.plane.rights import RightsFile, may_change, may_read
from headgate.plane.rule_log import Author
from headgate.plane.staging import ChangeCall, check_shadow
from headgate.plane.under_way import PlaneMarks, encode_rollouts, encode_shadows, under_way
from headgate.v1 import rules_pb2 as pb

MOST_HISTORY: Final = 1_000
"""Entries in one answer of the history."""
MOST_DOMAINS_READ: Final = 10_000
MOST_NAMED: Final = 1_000
"""Domains that a status names."""
MOST_SHADOW_MS: Final = 7 * 86_400_000
"""Longest time of a shadow: what is to last belongs into the rules."""
MOST_PROBLEMS: Final = 1_000
"""Problems in one answer."""


@dataclass(frozen=True, slots=True)
class RulesService:
    """The methods of the service, but for the stream that followers have."""

    plane: Plane
    rights: RightsFile | None
    logger: FilteringBoundLogger
    stages: StagePlan = DEFAULT_PLAN

    def methods(self) -> Mapping[str, AdminMethod]:
        """Return the methods by path."""
        return {
            f"/{SERVICE}/Change": admin_method(pb.ChangeRequest, self.change),
            f"/{SERVICE}/Rollback": admin_method(pb.RollbackRequest, self.rollback),
            f"/{SERVICE}/Halt": admin_method(pb.HaltRequest, self.halt),
            f"/{SERVICE}/Shadow": admin_method(pb.ShadowRequest, self.shadow),
            f"/{SERVICE}/History": admin_method(pb.HistoryRequest, self.history),
            f"/{SERVICE}/Status": admin_method(pb.StatusRequest, self.status),
        }

    async def change(self, request: pb.ChangeRequest, operator: Operator) -> pb.ChangeResponse:
        """Append one entry with these changes, at once or in stages, or none."""
        changes = decode_changes(request.changes)
        if any(change.kind is not RecordKind.RULE for change in changes):
            raise BadRequest("a call changes rules: what is staged, and what is in shadow, is the plane's to say")
        domains = {change.domain for change in changes}
        may_change(self.rights, operator, domains)
        call = ChangeCall(self._author(operator, request.why), self._plan(request), request.now)
        changed = await self.plane.change(changes, call, request.expect)
        for fields in _logged(changed, operator):
            self.logger.warning("rules_changed", **fields)
        return await self._answer(changed, domains)

    async def rollback(self, request: pb.RollbackRequest, operator: Operator) -> pb.ChangeResponse:
        """Append what leads back to a version."""
        author, allow = self._author(operator, request.why), partial(may_change, self.rights, operator)
        changed = await self.plane.rollback(request.version, author, request.expect, allow)
        for fields in _logged(changed, operator):
            self.logger.warning("rules_rolled_back", **fields)
        return await self._answer(changed)

    async def halt(self, request: pb.HaltRequest, operator: Operator) -> pb.ChangeResponse:
        """Hold rollouts where they are, or let them go on."""
        author, allow = self._author(operator, request.why), partial(may_change, self.rights, operator)

        def changes(records: Records) -> list[RuleChange]:
            found = [one for one in records.rollouts() if request.domain in ("", one.domain)]
            if request.domain and not found:
                raise Misconfigured(f"{request.domain}: no rollout is under way")
            allow(one.domain for one in found)
            return [replace(one, halted=not request.resume).record() for one in found]

        changed = await self.plane.append(changes, author)
        for fields in _logged(changed, operator):
            self.logger.warning("rollouts_resumed" if request.resume else "rollouts_halted", **fields)
        return await self._answer(changed, {request.domain} - {""} or None)

    async def shadow(self, request: pb.ShadowRequest, operator: Operator) -> pb.ChangeResponse:
        """Stop rules from denying for a time, or let them deny again."""
        may_change(self.rights, operator, {request.domain})
        author, path = self._author(operator, request.why), decode_path(request.path)
        if not 0 <= request.for_ms <= MOST_SHADOW_MS:
            raise BadRequest(f"`for_ms` is {request.for_ms}: a shadow lasts up to {MOST_SHADOW_MS}, and ends with 0")

        def changes(records: Records) -> list[RuleChange]:
            check_shadow(records, request.domain, path)
            until_ms, index = author.now_ms + request.for_ms, self.plane.log.position.index + 1
            record = ShadowRecord(request.domain, path, until_ms, author.who, author.why, index).record()
            return [record if request.for_ms else without(record)]

        changed = await self.plane.append(changes, author)
        for fields in _logged(changed, operator):
            self.logger.warning("shadow_begun" if request.for_ms else "shadow_ended", **fields)
        return await self._answer(changed, ())

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
        found = await plane.read(self._under_way)
        now_ms, followers = plane.clock.now_ms(), plane.everybody()
        ages_ms = await plane.read(lambda: ages_of(followers, log, now_ms))
        return pb.StatusResponse(
            head=encode_position(log.position),
            head_made_ms=entries[0].made_ms if entries else 0,
            rules=log.rules,
            domains=len(log.domains),
            upstream=plane.upstream,
            fresh_ms=max(0, now_ms - plane.age_ms()),
            followers=map(encode_follower, followers, ages_ms),
            now_ms=now_ms,
            rollouts=encode_rollouts(found, plane.tallies, followers, now_ms),
            shadows=encode_shadows(found),
            named=[pb.DomainVersion(domain=name, version=version) for name, version in log.versions(MOST_NAMED)],
        )

    async def read(self, request: pb.ReadRequest, operator: Operator) -> AsyncIterator[bytes]:
        """The rules of some domains, in parts."""
        may_read(self.rights, operator)
        if len(request.domains) > MOST_DOMAINS_READ:
            raise BadRequest(f"{len(request.domains)} domains, at most {MOST_DOMAINS_READ} are read in one call")
        parts = self.plane.log.parts(list(request.domains))
        while (part := await self.plane.read(partial(_next, parts))) is not None:
            rules = tuple(rule for rule in part.rules if rule.kind is RecordKind.RULE)
            yield encode_part(replace(part, rules=rules)).SerializeToString()

    # What the methods share

    def _author(self, operator: Operator, why: str) -> Author:
        if self.plane.upstream:
            raise Misconfigured(f"this is a relay: rules are changed at the root, {self.plane.upstream}")
        if len(why) > MAX_WHY_CHARS:
            raise BadRequest(f"`why` has {len(why)} characters, at most {MAX_WHY_CHARS} are accepted")
        return Author(operator.who, why, self.plane.clock.now_ms())

    def _plan(self, request: pb.ChangeRequest) -> StagePlan:
        if not request.HasField("expect_denials"):
            return self.stages
        if request.expect_denials > MILLION:
            raise BadRequest(f"`expect_denials` is {request.expect_denials}: at most {MILLION} millionths are all")
        return replace(self.stages, expect_denials=request.expect_denials)

    def _under_way(self) -> PlaneMarks:
        with self.plane.log.looking() as records:
            return under_way(records)

    async def _answer(self, changed: Changed, domains: Collection[str] | None = None) -> pb.ChangeResponse:
        """Say what was done, with the rollouts of some domains, or of those that were changed."""
        problems = [
            pb.Problem(domain=problem.domain, path=encode_path(problem.path), reason=problem.reason)
            for problem in changed.problems[:MOST_PROBLEMS]
        ]
        concerned = domains if domains is not None else {name for entry in changed.entries for name in entry.domains}
        found = await self.plane.read(self._under_way)
        rollouts = encode_rollouts(found, self.plane.tallies, self.plane.everybody(), self.plane.clock.now_ms())
        return pb.ChangeResponse(
            position=encode_position(changed.position),
            changed=sum(map(_count, changed.entries)),
            problems=problems,
            rollouts=[one for one in rollouts if one.domain in concerned],
        )


def _logged(changed: Changed, operator: Operator) -> Iterator[dict[str, Any]]:
    """Fields of a log line for each entry: a warning, as every change by hand, because it is not to be missed."""
    for entry in changed.entries:
        yield {
            "who": operator.who,
            "peer": operator.peer,
            "why": entry.why,
            "index": entry.position.index,
            "version": entry.position.version,
            "changes": len(entry.changes),
            "domains": entry.domains[:20],
        }


def _count(entry: LogEntry) -> int:
    """Count what an entry changes: a rule that comes into force, and is no longer staged, is one; a rollout is none."""
    return len({(item.domain, item.path) for item in entry.changes if item.path or item.kind is not RecordKind.STAGED})


def _next(parts: Iterator[RulesPart]) -> RulesPart | None:
    return next(parts, None)


def _shown(entry: LogEntry, *, with_changes: bool) -> pb.LogEntry:
    """An entry as a message; without its changes each domain is there once for each kind of record that it changes."""
    message = encode_entry(entry)
    if not with_changes:
        del message.changes[:]
        kinds = sorted({(change.domain, change.kind) for change in entry.changes})
        message.changes.extend(encode_change(RuleChange(domain, (), None, kind)) for domain, kind in kinds)
    return message
