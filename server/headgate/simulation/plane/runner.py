"""Play one day of a plane, and say what was violated.

- *published*: the rules that a node has in force of a domain are, at any time, those of some published version.
- *position*: whoever follows has, at its index, the very version that was published there.
- *back*: nobody goes back in the log, except for who lost its disk.
- *begins*: whoever has nothing begins with what the one that it asks had then, or with something later.
- *fresh*: a node that counts as fresh as of some time had the root's head then, and all of it in force.
- *staged*: a node decides every key as the records that it has in force say: by the staged rules exactly if the hash of
  the key is below the share.
- *heal*: when messages flow again, all reach the head.
"""

import asyncio
import contextlib
import json
import zlib
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.errors import BadRequest
from headgate.limiter.rule_name import Steps
from headgate.plane.entry import GONE, Position, RecordKind, RuleChange
from headgate.plane.rule_log import Author, RuleLog
from headgate.simulation.loop import run_virtually
from headgate.simulation.plane.decisions import Expected, Records, expected
from headgate.simulation.plane.history import LENGTH_S, PlaneFault, PlaneFaultKind, PlaneHistory
from headgate.simulation.plane.world import LATE_S, PlaneWorld, SimulatedFollower
from headgate.simulation.stage import MOST_VIOLATIONS, Violation

HEAL_S: Final = 75.0
"""Seconds after the last fault: the longest wait before a follower asks anew, and a stream that is given up."""
DELAY_S: Final = 2 * LATE_S + 0.5
"""Seconds that beats may take to a relay and on to a node: by so much a node may take itself for fresher than it is."""

DOMAINS: Final = ("edge", "api", "jobs")
USERS: Final = ("ann", "bob", "eve", "a*", "*")
LIMIT: Final = b'{"rate_limit":{"requests_per_unit":%d,"unit":"minute"}}'
RULES: Final = (LIMIT % 5, LIMIT % 7, b"{}", None)
SHARES: Final = (100_000, 500_000, 900_000)
CALLERS: Final = ("ann", "bob", "eve", "amy", "joe")
"""Callers whose decisions are looked at: by their own rules, by patterns, and by nobody's."""


@dataclass(slots=True)
class PlaneOutcome:
    """Result of one day."""

    history: PlaneHistory
    violations: list[Violation] = field(default_factory=list)
    entries: int = 0
    moves: int = 0
    """Times that a follower took something."""
    digest: int = 0
    """Digest of every such move, in order: two runs with the same one were the same run."""

    @property
    def ok(self) -> bool:
        """True if nothing was violated."""
        return not self.violations


Content = Records


class PlaneWatch:
    """Knows what was published, and compares it with what followers have."""

    def __init__(self, world: PlaneWorld, outcome: PlaneOutcome) -> None:
        self._world = world
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        self._published: dict[str, set[Content]] = {domain: {frozenset()} for domain in DOMAINS}
        self._expected: dict[Records, Expected] = {}
        self._versions: dict[tuple[str, int], str] = {}
        self._heads: list[tuple[float, str]] = []
        self._seen: dict[str, Position] = {}
        self._fresh: dict[str, float | None] = {}
        self.note(world.root.log)
        for follower in world.followers:
            follower.moved = lambda follower=follower: self.check(follower)  # type: ignore[misc]
            follower.beaten = lambda follower=follower: self.check_fresh(follower)  # type: ignore[misc]

    def violate(self, invariant: str, what: str) -> None:
        if len(self._outcome.violations) < MOST_VIOLATIONS:
            self._outcome.violations.append(Violation(invariant, self._loop.time(), what))

    def note(self, log: RuleLog) -> None:
        """Note what the root's log comes to now."""
        at = log.position
        self._versions[at.plane, at.index] = at.version
        self._heads.append((self._loop.time(), at.version))
        for domain, content in contents(log).items():
            self._published[domain].add(content)

    def forget(self, follower: SimulatedFollower) -> None:
        """Forget where a follower was: it has lost its disk."""
        self._seen.pop(follower.name, None)

    def check(self, follower: SimulatedFollower) -> None:
        """Compare what a follower has, after it moved."""
        at, before = follower.plane.log.position, self._seen.get(follower.name)
        self._outcome.moves += 1
        fact = f"{self._loop.time():.6f} {follower.name} {at}".encode()
        self._outcome.digest = zlib.crc32(fact, self._outcome.digest)
        if before is not None and at.is_behind(before):
            self.violate("back", f"{follower.name}: from {before} to {at}")
        if before is None and follower.asked_at is not None and at.is_behind(follower.asked_at):
            self.violate("begins", f"{follower.name}: with {at}, and {follower.asked_at} was there when it asked")
        self._seen[follower.name] = at
        if self._versions.get((at.plane, at.index)) != at.version:
            self.violate("position", f"{follower.name}: {at} was not published")
        for domain, rules in follower.in_force.items():
            if frozenset(rules) not in self._published[domain]:
                self.violate("published", f"{follower.name}: {domain} at {at} is a mixture")
            elif not follower.relay:
                self._check_decisions(follower, domain, frozenset(rules))

    def _check_decisions(self, follower: SimulatedFollower, domain: str, records: Records) -> None:
        if records not in self._expected:
            self._expected[records] = expected(domain, records)
        should = self._expected[records]
        for user in CALLERS:
            met, wanted = follower.match(domain, user), should.match([("user", user)])
            if met != wanted:
                self.violate("staged", f"{follower.name}: {user} of {domain} meets {met}, and should {wanted}")

    def check_fresh(self, follower: SimulatedFollower) -> None:
        """Compare, after a beat, as of when a follower counts as fresh."""
        fresh_s = follower.following.fresh_s
        if fresh_s is None or fresh_s == self._fresh.get(follower.name):
            return
        self._fresh[follower.name] = fresh_s
        version = follower.plane.log.position.version
        since = [head for at_s, head in self._heads if at_s <= fresh_s - DELAY_S][-1:]
        since += [head for at_s, head in self._heads if at_s > fresh_s - DELAY_S]
        if version not in since:
            self.violate("fresh", f"{follower.name}: as of {fresh_s:.3f} s, and has another version than the root had")
        if follower.refuses is not None and contents(follower.plane.log) != in_force(follower):
            self.violate("fresh", f"{follower.name}: as of {fresh_s:.3f} s, though it refuses {follower.refuses}")

    def check_healed(self) -> None:
        """Compare, at the end of the day, whether all are at the head."""
        head = self._world.root.log.position
        for follower in self._world.followers:
            if follower.plane.log.position != head:
                self.violate("heal", f"{follower.name}: at {follower.plane.log.position}, the head is {head}")


def contents(log: RuleLog) -> dict[str, Content]:
    """Rules of each domain of a log."""
    found: dict[str, set[RuleChange]] = {domain: set() for domain in DOMAINS}
    for part in log.parts():
        for rule in part.rules:
            found[rule.domain].add(rule)
    return {domain: frozenset(rules) for domain, rules in found.items()}


def in_force(follower: SimulatedFollower) -> dict[str, Content]:
    """Rules of each domain that decide a node's requests."""
    return {domain: frozenset(follower.in_force.get(domain, ())) for domain in DOMAINS}


def _mark(domain: str, path: Steps, rule: bytes) -> RuleChange:
    return RuleChange(domain, path, rule, RecordKind.STAGED)


def _rollout(name: str, share: int) -> bytes:
    return b'{"rollout":"%s","share":%d}' % (name.encode(), share)


def _placed(user: str, rule: bytes | None) -> bytes | None:
    """Give a pattern its place: that of a longer one is before that of all."""
    if rule is None or "*" not in user:
        return rule
    return b'{"place":%d%s' % (len(user) % 2, rule[1:] if rule == b"{}" else b"," + rule[1:])


def run_plane(history: PlaneHistory) -> PlaneOutcome:
    """Play a day on virtual time, in this process."""
    return run_virtually(_Day(history).play())


class _Day:
    def __init__(self, history: PlaneHistory) -> None:
        self._history = history
        self._outcome = PlaneOutcome(history)

    async def play(self) -> PlaneOutcome:
        self._world = PlaneWorld(self._history.seed)
        self._watch = PlaneWatch(self._world, self._outcome)
        tasks = [asyncio.create_task(follower.run()) for follower in self._world.followers]
        events = [(at_s, self._change) for at_s in self._history.changes_s]
        for fault in self._history.faults:
            events.append((fault.at_s, lambda fault=fault: self._begin(fault)))  # type: ignore[misc]
            events.append((fault.at_s + fault.for_s, lambda fault=fault: self._end(fault)))  # type: ignore[misc]
        if self._history.promoted_s is not None:
            events.append((self._history.promoted_s, self._promote))
        events.append((LENGTH_S + HEAL_S, self._watch.check_healed))
        loop = asyncio.get_running_loop()
        for at_s, happen in sorted(events, key=lambda event: event[0]):
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            happen()
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                self._watch.violate("tasks", repr(error))
        return self._outcome

    # What happens

    def _change(self) -> None:
        root, chance = self._world.root, self._world.chance
        author = Author("ann", "", 0)
        if not root.alive:
            return
        if root.log.position.index > 3 and chance.random() < 0.15:
            made = []
            with contextlib.suppress(BadRequest):  # a relay that was made the root does not reach back so far
                made = root.log.rollback("", author)
        else:
            changes = self._staged() if chance.random() < 0.4 else self._changes()
            entry = root.log.change(changes, author)
            made = [] if entry is None else [entry]
        self._outcome.entries += len(made)
        self._watch.note(root.log)

    def _changes(self) -> list[RuleChange]:
        """Some rules, of a domain or several; those that are staged are left alone, as the plane does."""
        chance = self._world.chance
        staged = {(record.domain, record.path) for record in self._world.root.log.marks()}
        changes: list[RuleChange] = []
        for _ in range(chance.randint(1, 4)):
            domain, user, rule = chance.choice(DOMAINS), chance.choice(USERS), chance.choice(RULES)
            changes.append(RuleChange(domain, (("user", user),), _placed(user, rule)))
        return [change for change in changes if (change.domain, change.path) not in staged]

    def _staged(self) -> list[RuleChange]:
        """Begin a rollout of a domain, or let it go on, or end it one way or the other."""
        chance, log = self._world.chance, self._world.root.log
        domain = chance.choice(DOMAINS)
        records = [record for record in log.marks() if record.domain == domain]
        if not records:
            rules = {chance.choice(USERS): chance.choice(RULES) for _ in range(2)}
            begun = [_mark(domain, (("user", user),), _placed(user, rule) or GONE) for user, rule in rules.items()]
            return [_mark(domain, (), _rollout(f"r{log.position.index}", SHARES[0])), *begun]
        rollout = next(json.loads(record.rule or b"{}") for record in records if not record.path)
        later = [share for share in SHARES if share > rollout["share"]]
        if later and chance.random() < 0.7:
            return [_mark(domain, (), _rollout(rollout["rollout"], later[0]))]
        ended = [replace(record, rule=None) for record in records]
        through = [
            RuleChange(domain, record.path, None if record.rule == GONE else record.rule)
            for record in records
            if record.path
        ]
        return ended if chance.random() < 0.3 else [*ended, *through]

    def _promote(self) -> None:
        self._world.promote()
        self._watch.note(self._world.root.log)

    def _begin(self, fault: PlaneFault) -> None:
        followers = self._world.followers
        follower = followers[fault.follower % len(followers)]
        match fault.kind:
            case PlaneFaultKind.CRASH | PlaneFaultKind.WIPE:
                follower.kill()
            case PlaneFaultKind.ROOT_CRASH:
                self._world.root.kill()
            case PlaneFaultKind.REFUSING:
                follower.refuses = DOMAINS[fault.follower % len(DOMAINS)] if not follower.relay else None
            case _:
                follower.path.faults.add(fault.kind)

    def _end(self, fault: PlaneFault) -> None:
        if fault.kind is PlaneFaultKind.ROOT_CRASH:
            if not self._world.root.alive:
                self._world.root.restart(wiped=False)
            return
        for follower in self._world.followers:
            follower.path.faults.discard(fault.kind)
            if not follower.plane.alive:
                wiped = fault.kind is PlaneFaultKind.WIPE
                if wiped:
                    self._watch.forget(follower)
                follower.restart(wiped=wiped)
            if fault.kind is PlaneFaultKind.REFUSING and follower.refuses is not None:
                follower.refuses = None
                follower.take()
