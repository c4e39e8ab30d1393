"""The invariants that hold at every step, checked at every answer, every decision and every few milliseconds.

What each of them says is in its method. What holds only when all is quiet again is in
quiescence.py.
"""

from collections import Counter
from typing import Final, NamedTuple

from headgate.limiter.decision import Charge, Decision, DecisionPath, denies
from headgate.limiter.limit import Algorithm, Limit
from headgate.origin.protocol import (
    Answer,
    BucketAnswer,
    BucketReport,
    Call,
    Count,
    Reply,
    Report,
    WindowAnswer,
    WindowReport,
)
from headgate.region.bucket_counter import SharedBucket
from headgate.region.cells import CellView
from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.region.shard_link import USABLE_S
from headgate.region.window_counter import SharedWindow
from headgate.simulation.books import Books, BucketBook
from headgate.simulation.world import NodeSlot, World

MOST_VIOLATIONS: Final = 20
"""Kept: the first few tell all, and a broken build makes thousands."""
EPSILON_S: Final = 1e-6
NOTICED_S: Final = 2.0
"""A heartbeat and its timeout: after so long every node that reaches a shard knows that its clock was set."""
DEGRADED: Final = frozenset({DecisionPath.DEGRADED_LOCAL, DecisionPath.DEGRADED_OPEN, DecisionPath.DEGRADED_CLOSED})


class Violation(NamedTuple):
    """A promise that a history broke: which, when, and how."""

    invariant: str
    at_s: float
    what: str

    def describe(self) -> str:
        return f"{self.at_s:9.3f} s  {self.invariant}: {self.what}"


class Belief(NamedTuple):
    """What a node knew of a cell when it was last looked at."""

    sequence: int
    total: int
    own: int
    others: int
    foreign: int
    highest_total_seen: int


class Asked(NamedTuple):
    """A request when it was asked."""

    slot: NodeSlot
    node: RegionNode
    charges: tuple[Charge, ...]
    at_s: float
    times_ms: tuple[tuple[int, int], ...]
    """The time of each key's shard: as its node knew it, and as it was."""


class Watch:
    """Checks every promise while a history is played, from the books and from what nodes say."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.books = Books()
        self.violations: list[Violation] = []
        self.paths: Counter[str] = Counter()
        self.promised: Counter[tuple[RegionNode, bytes]] = Counter()
        """What each node told its clients to be admitted, by key; and what it committed."""
        self.committed: Counter[tuple[RegionNode, bytes]] = Counter()
        self.restated: set[tuple[RegionNode, bytes]] = set()
        """Where a node's clock had been off, and windows were put together."""
        self._beliefs: dict[CellView, Belief] = {}
        self._pairs: dict[SharedWindow, tuple[CellView, CellView]] = {}
        self._components: dict[SharedWindow, bytes] = {}
        self._lived: dict[int, list[tuple[int, int]]] = {index: [] for index in range(len(world.shards))}
        """Spans of each shard's time before its clock was set: it may come by them again."""
        self._stepped_s: dict[int, float] = {}
        """When each shard's clock was last set."""
        self._since_ms = [shard.time_ms() for shard in world.shards]
        self._unanswered: set[SharedWindow] = set()
        self._buckets: dict[tuple[SharedBucket, bytes], tuple[int, int, int]] = {}
        self._told: dict[tuple[int, bytes, int, bytes], tuple[int, int]] = {}
        self._upset_s: dict[bytes, float] = {}
        self._vain: dict[tuple[bytes, int], dict[bytes, int]] = {}
        self._most_reports: Counter[str] = Counter()
        self._reports: dict[tuple[int, int, int], list[tuple[float, int]]] = {}
        world.on_error = lambda what: self.violate("tasks", what)
        for key in world.history.keys:
            if key.limit.algorithm is Algorithm.GCRA:
                self.books.buckets[key.name] = BucketBook(max(1, key.limit.requests_per_unit))
        for index, shard in enumerate(world.shards):
            shard.on_reply = lambda call, reply, index=index: self._replied(index, call, reply)  # type: ignore[misc]

    def violate(self, invariant: str, what: str, at_s: float | None = None) -> None:
        now_s = self.world.loop.time() if at_s is None else at_s
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(invariant, now_s, what))
        self.world.trace.say("VIOLATION", f"{invariant}: {what}")

    # What disturbs

    def shard_upset(self, index: int) -> None:
        """It lost something that it knew: its grants with it."""
        shard = self.world.shards[index]
        self.books.disturb(index, shard.time_ms(), self._latest_ms(index))
        for key in self.world.history.keys:
            if self.world.shard_of(key.name) == index:
                self._lost(key.name)
        self._disturb_buckets(index)

    def key_upset(self, key: bytes) -> None:
        """The shard lost one key's record, and nothing else."""
        shard = self.world.shards[self.world.shard_of(key)]
        self.books.disturb(key, shard.time_ms(), shard.key_time_ms(key))
        self._lost(key)
        if key in self.books.buckets:
            self.books.buckets[key].disturb(shard.key_time_ms(key))

    def _lost(self, key: bytes) -> None:
        self._upset_s[key] = self.world.loop.time()
        self._told = {told: counts for told, counts in self._told.items() if told[1] != key}
        for _, _, counter in self.world.counters():
            if isinstance(counter, SharedWindow) and counter.key == key:
                for cell in counter.cells:
                    self._in_vain(counter, cell, cell.highest_sent - cell.own)

    def clock_upset(self, index: int, by_ms: int) -> None:
        """A shard's clock is about to be set: records that lie ahead may begin anew, and times come again."""
        now_ms = self.world.shards[index].time_ms()
        then_ms = now_ms + by_ms
        self.shard_upset(index)
        self._stepped_s[index] = self.world.loop.time()
        self._lived[index].append((self._since_ms[index], now_ms))
        self._since_ms[index] = then_ms
        self.books.disturb(index, then_ms, then_ms)
        for from_ms, to_ms in self._lived[index]:
            if to_ms >= then_ms:
                self.books.disturb(index, max(from_ms, then_ms), to_ms)
        for key, book in self.books.buckets.items():
            if self.world.shard_of(key) == index:
                book.disturb(then_ms)

    def _latest_ms(self, index: int) -> int:
        """The latest time by which a key of the shard would be charged."""
        shard = self.world.shards[index]
        mine = [key.name for key in self.world.history.keys if self.world.shard_of(key.name) == index]
        return max([shard.time_ms(), *map(shard.key_time_ms, mine)])

    def node_upset(self) -> None:
        """A node was killed: what it had admitted and not reported is gone."""
        for index, shard in enumerate(self.world.shards):
            self.books.disturb(index, shard.time_ms(), self._latest_ms(index))
            self._disturb_buckets(index)

    def rule_upset(self, key: bytes) -> None:
        shard = self.world.shards[self.world.shard_of(key)]
        self.books.disturb(key, shard.time_ms(), shard.key_time_ms(key))
        self._upset_s[key] = self.world.loop.time()
        if key in self.books.buckets:
            self.books.buckets[key].disturb(shard.key_time_ms(key))

    def _disturb_buckets(self, index: int) -> None:
        for key, book in self.books.buckets.items():
            if self.world.shard_of(key) == index:
                book.disturb(self.world.shards[index].key_time_ms(key))

    # At every answer of a shard

    def _replied(self, index: int, call: Call, reply: Reply) -> None:
        if self.world.trace.listening:
            self.world.trace.say(f"shard {index}", _told(call, reply))
        counted: list[tuple[WindowReport, int, Count]] = []
        for report, answer in zip(call.reports, reply.answers, strict=True):
            if isinstance(answer, BucketAnswer) and isinstance(report, BucketReport):
                if report.total > self.books.buckets[report.key].components.get(report.component, 0):
                    # Of a cell that went while its request waited: when it was admitted nobody saw.
                    self.books.buckets[report.key].disturb(reply.time_ms)
                limit = self.world.limit_at(report.key, report.rate)
                self._poured(report.key, report.component, answer.own, limit)
            elif isinstance(answer, WindowAnswer) and isinstance(report, WindowReport):
                counted.append((report, answer.sequence, answer.current))
                counted.append((report, answer.sequence - 1, answer.previous))
        # All of them first: a key that went and came back may be in one call twice.
        for report, sequence, count in counted:
            self.books.cells[report.key, sequence].raise_to(report.component, count.own)
        for report, sequence, count in counted:
            self._counted(index, report.key, sequence, report.component, count)

    def _counted(self, index: int, key: bytes, sequence: int, component: bytes, count: Count) -> None:
        """Components grow between losses; a total is never above the truth: nothing is counted twice."""
        book = self.books.cells[key, sequence]
        told = self._told.get((index, key, sequence, component), (0, 0))
        if count.own < told[0] or count.region_total < told[1]:
            self.violate(
                "components", f"{key.decode()}: own, region total from {told} to {(count.own, count.region_total)}"
            )
        self._told[index, key, sequence, component] = (count.own, count.region_total)
        if count.region_total > book.total:
            what = f"{key.decode()} in {sequence}: {count.region_total} counted, {book.total} admitted or charged"
            self.violate("counted_twice", what)

    # At every decision

    def decided(self, asked: Asked, cells: list[SharedCounter | None], decision: Decision, unplaced: bool) -> None:
        """`cells` are those that the request met: one may have gone from the table while it waited."""
        world = self.world
        self.paths[f"{decision.path.value} {'admitted' if decision.admitted else 'denied'}"] += 1
        if world.loop.time() - asked.at_s > world.history.deadline_ms / 1000 + EPSILON_S:
            self.violate("deadline", f"{asked.slot.name}: {world.loop.time() - asked.at_s:.6f} s")
        if decision.path in DEGRADED and not unplaced:
            self._degraded(asked)
        for charge, counter, (over, _, _) in zip(asked.charges, cells, decision.verdicts, strict=True):
            if decision.admitted and not over and not unplaced:
                self.promised[asked.node, charge.key] += charge.cost
            if counter is not None:
                self.observe(asked.slot, counter)
        if decision.path in DEGRADED:
            self._by_policy(asked, decision, unplaced)
        elif not decision.admitted:
            self._denied(asked, decision)

    def _degraded(self, asked: Asked) -> None:
        """From when it was asked until now its shards were not healthy."""
        for charge, began_ms in zip(asked.charges, asked.times_ms, strict=True):
            index = self.world.shard_of(charge.key)
            times_ms = (*began_ms, self.world.shards[index].key_time_ms(charge.key))
            if self.world.shards[index].clock_steps:
                for time_ms in times_ms:
                    self.books.disturb(index, time_ms, time_ms)
            else:
                self.books.disturb(index, min(times_ms), max(times_ms))
            self._disturb_buckets(index)

    def _by_policy(self, asked: Asked, decision: Decision, unplaced: bool) -> None:
        """`closed` admits nothing; `open` no more than the limit, per node and cell; `local` only what fits."""
        enforced = not any(charge.shadow or charge.quota for charge in asked.charges)
        if decision.admitted and decision.path is DecisionPath.DEGRADED_CLOSED and enforced:
            self.violate("policy", f"{asked.slot.name} admitted by a closed policy")
        if not decision.admitted or unplaced or len(asked.charges) > 1 or not asked.charges[0].cost:
            return
        if decision.verdicts[0][0]:
            return  # over, and admitted all the same: in shadow, and so not charged
        limit, counter = asked.charges[0].limit, asked.node.engine.counters.find(asked.charges[0].key)
        if not isinstance(counter, SharedWindow):
            return
        cell = counter.current_cell
        if decision.path is DecisionPath.DEGRADED_OPEN and cell.total > limit.requests_per_unit:
            self.violate("policy", f"{asked.slot.name} admitted {cell.total} by an open policy")
        known = cell.others + cell.foreign + max(cell.own, cell.total + cell.reserved)
        if decision.path is DecisionPath.DEGRADED_LOCAL and known > limit.requests_per_unit:
            self.violate("policy", f"{asked.slot.name} admitted although it knew of {known}")
        for_all = cell.unacked * max(1.0, asked.node.live_nodes / 1.5)
        if decision.path is DecisionPath.DEGRADED_LOCAL and known - cell.unacked + for_all > limit.requests_per_unit:
            self.violate("policy", f"{asked.slot.name} admitted {cell.unacked}, which is too many if all do")

    def _denied(self, asked: Asked, decision: Decision) -> None:
        """A denial is never wrong: by the truth at some instant since it was asked it did not fit."""
        if any(self._cannot_judge(asked.node, charge) for charge in asked.charges):
            return
        over = [
            -1 if self._truly_over(asked, charge, began_ms, decision.path) else 0
            for charge, began_ms in zip(asked.charges, asked.times_ms, strict=True)
        ]
        if not denies(asked.charges, over):
            keys = ", ".join(charge.key.decode() for charge in asked.charges)
            self.violate("denial", f"{asked.slot.name} denied {keys} ({decision.path.value}) although all fit")

    def _cannot_judge(self, node: RegionNode, charge: Charge) -> bool:
        """Buckets are judged by what they hold; a counter without an answer yet may be in another time.

        So may one whose shard's clock was just set: its node hears of it with the next heartbeat.
        """
        stepped_s = self._stepped_s.get(self.world.shard_of(charge.key))
        if stepped_s is not None and self.world.loop.time() - stepped_s < NOTICED_S:
            return True
        counter = node.engine.counters.find(charge.key)
        return charge.limit.algorithm is Algorithm.GCRA or (counter is not None and not counter.has_answer)

    def _truly_over(self, asked: Asked, charge: Charge, began_ms: tuple[int, int], path: DecisionPath) -> bool:
        key, limit = charge.key, charge.limit
        if not limit.requests_per_unit:
            return True
        index = self.world.shard_of(key)
        now_ms = asked.node.links[index].now_ms()
        cost = sum(other.cost for other in asked.charges if other.key == key)
        times = {*began_ms, now_ms, self.world.shards[index].key_time_ms(key)}
        if min(times) // limit.window_ms < max(times) // limit.window_ms:
            times.add(max(times) // limit.window_ms * limit.window_ms)  # a window's counts weigh most as it begins
        if path in (DecisionPath.LOCAL, DecisionPath.DENY_CACHE):
            # Else credit may have been another request's at that instant.
            cost = max(0, cost - self._credit_now(asked.node, key))
        cost += self._reserved(asked.node, key) + self._charged_unheard(asked.slot, key)
        return any(self.books.effective(key, limit, time_ms) + cost > limit.requests_per_unit for time_ms in times)

    def _reserved(self, node: RegionNode, key: bytes) -> int:
        """What the node's own reservations add to the truth."""
        counter = node.engine.counters.find(key)
        if not isinstance(counter, SharedWindow):
            return 0
        cell = counter.current_cell
        return max(0, cell.total + cell.reserved - max(cell.own, cell.total)) + counter.previous_cell.reserved

    def _credit_now(self, node: RegionNode, key: bytes) -> int:
        counter = node.engine.counters.find(key)
        return 0 if counter is None else counter.credit

    # At every look at a cell

    def observe(self, slot: NodeSlot, counter: SharedCounter) -> None:
        if isinstance(counter, SharedBucket):
            self._observe_bucket(slot, counter)
            return
        assert isinstance(counter, SharedWindow)  # noqa: S101 - there is no third kind
        pair = self._pairs.get(counter)
        if pair != counter.cells:
            self._changed_cells(slot, counter, pair)
        if counter.has_answer:
            self._unanswered.discard(counter)
        else:
            self._unanswered.add(counter)
        for cell in counter.cells:
            self._observe_cell(slot, counter, cell)

    def _changed_cells(self, slot: NodeSlot, counter: SharedWindow, pair: tuple[CellView, CellView] | None) -> None:
        """A window goes only when its time is over: what was admitted in it is not lost before."""
        self._pairs[counter] = counter.cells
        if self._components.setdefault(counter, counter.component) != counter.component:
            # It has begun anew: right after a step, wrong at any other time.
            self._components[counter] = counter.component
            self._restated(slot, counter.key)
            if not self.world.shards[counter.shard.index].clock_steps:
                self.violate("lost", f"{slot.name} {counter.key.decode()} began anew, and no clock was set")
            return
        now_ms = self.world.shards[counter.shard.index].time_ms()
        if slot.node is not None:
            now_ms = max(now_ms, slot.node.links[counter.shard.index].now_ms())
        for cell in pair or ():
            gone = cell not in counter.cells and cell.unacked
            over = cell.sequence < max(counter.sequence, now_ms // counter.window_ms) - 1
            if gone and not over and self._taken_over(counter, cell, pair):
                self._restated(slot, counter.key)
            elif gone and not over:
                self.violate("lost", f"{slot.name} {counter.key.decode()}: {cell.unacked} of window {cell.sequence}")

    def _taken_over(self, counter: SharedWindow, cell: CellView, pair: tuple[CellView, CellView] | None) -> bool:
        """The window before last went, or another part took this one in because the node's clock had been off."""
        if (
            pair is not None
            and counter.current_cell is not pair[0]
            and (cell is pair[1] or counter in self._unanswered)
        ):
            return True
        return any(now.sequence == cell.sequence and now.total >= cell.total for now in counter.cells)

    def asked_in_vain(self, key: bytes, sequence: int) -> int:
        """What nodes had asked for when the shard lost something, or have since, and were not charged, at most."""
        return sum(self._vain.get((key, sequence), {}).values())

    def _in_vain(self, counter: SharedWindow, cell: CellView, cost: int) -> None:
        vain = self._vain.setdefault((counter.key, cell.sequence), {})
        vain[counter.component] = max(vain.get(counter.component, 0), cost)

    def _observe_cell(self, slot: NodeSlot, counter: SharedWindow, cell: CellView) -> None:
        if self.world.shards[counter.shard.index].has_lost(counter.key):
            self._in_vain(counter, cell, cell.highest_sent - max(cell.own, cell.total))
        now = Belief(cell.sequence, cell.total, cell.own, cell.others, cell.foreign, cell.highest_total_seen)
        was = self._beliefs.get(cell, None)
        if now == was:
            self._above_truth(slot, counter, cell)
            return
        self._beliefs[cell] = now
        books, key = self.books, counter.key
        was = was or Belief(cell.sequence, 0, 0, 0, 0, 0)
        known = was.total
        if was.sequence != cell.sequence:  # the node's own clock had been off
            book = books.cells[key, was.sequence]
            book.strike(counter.component, was.total)
            book.committed -= was.total
            was = Belief(cell.sequence, 0, 0, 0, 0, 0)
            self._restated(slot, key)
        if any(new < old for new, old in zip(now, was, strict=True)):
            self.violate("beliefs", f"{slot.name} {key.decode()}: {was} to {now}")
        if cell.total > was.total:
            shard = self.world.shards[counter.shard.index]
            limit = counter.limit
            books.cells[key, cell.sequence].raise_to(counter.component, cell.total)
            self._committed(slot, key, cell.total - known)
            time_ms = shard.key_time_ms(key)
            books.commit(key, limit, cell.sequence, cell.total - was.total, time_ms, self.world.loop.time())
        self._above_truth(slot, counter, cell)

    def _restated(self, slot: NodeSlot, key: bytes) -> None:
        if slot.node is not None:
            self.restated.add((slot.node, key))

    def _committed(self, slot: NodeSlot, key: bytes, cost: int) -> None:
        if slot.node is not None:
            self.committed[slot.node, key] += cost

    def _above_truth(self, slot: NodeSlot, counter: SharedWindow, cell: CellView) -> None:
        """A node never believes in more than was admitted or charged by anybody, itself included."""
        book = self.books.cells[counter.key, cell.sequence]
        component = book.components.get(counter.component, 0)
        truth = book.total - component + max(component, cell.total + cell.reserved) + book.abroad
        truth += self._charged_unheard(slot, counter.key)
        if cell.known > truth:
            what = f"{slot.name} {counter.key.decode()} in {cell.sequence}: knows {cell.known}, the truth is {truth}"
            self.violate("belief_above_truth", what)

    def _charged_unheard(self, slot: NodeSlot, key: bytes) -> int:
        """After a loss, what a node was charged and never heard of comes back to it as somebody else's."""
        return slot.open_most[key] if self.world.shards[self.world.shard_of(key)].has_lost(key) else 0

    def _observe_bucket(self, slot: NodeSlot, counter: SharedBucket) -> None:
        known = (counter, counter.component)
        total, own, arrival_ms = self._buckets.get(known, (0, 0, 0))
        self._buckets[known] = (counter.total, counter.own, counter.answered_arrival[0])
        if counter.total < total or counter.own < own or counter.answered_arrival[0] < arrival_ms:
            what = f"total, own, arrival from {(total, own, arrival_ms)} to {self._buckets[known]}"
            self.violate("beliefs", f"{slot.name} {counter.key.decode()}: {what}")
        if counter.total > total:
            self._committed(slot, counter.key, counter.total - total)
            self._poured(counter.key, counter.component, counter.total, counter.limit)

    def _poured(self, key: bytes, component: bytes, value: int, limit: Limit) -> None:
        """A bucket never holds more than its burst and `P`."""
        book = self.books.buckets[key]
        shard = self.world.shards[self.world.shard_of(key)]
        over = book.raise_to(component, value, limit, shard.key_time_ms(key))
        # A node's notion of the time is a little behind the shard's: by a round trip at most.
        slack = self.world.history.deadline_ms * book.rate
        if over > slack and book.clean:
            self.violate("budget", f"{key.decode()}: {over / book.rate:.1f} ms above burst and P")

    # Every few milliseconds

    def look(self) -> None:
        world = self.world
        held: Counter[bytes] = Counter()
        unsettled: set[bytes] = set()
        allowed: dict[bytes, int] = {}
        for slot, _, counter in world.counters():
            self.observe(slot, counter)
            self._credit(slot, counter)
            link, now_s = counter, slot.clock.monotonic()
            if slot.serving and (grant := link.held(now_s)):
                held[counter.key] += grant
                allowed[counter.key] = max(allowed.get(counter.key, 0), link.limit.precision)
                upset_s = self._upset_s.get(counter.key)
                if upset_s is not None and link.usable_until_s <= upset_s + 1_000 + USABLE_S:
                    unsettled.add(counter.key)
        for key, total in held.items():
            if key in unsettled:
                # Who was granted something before the loss may use it until then.
                index = world.shard_of(key)
                time_ms = world.shards[index].key_time_ms(key)
                self.books.disturb(key, time_ms, time_ms)
            elif total > allowed[key]:
                self.violate("grants", f"{key.decode()}: {total} held of {allowed[key]}")
        for slot, node in world.nodes():
            self._bounded(slot, node)

    def _credit(self, slot: NodeSlot, counter: SharedCounter) -> None:
        """What is charged and not spent is at most what was under way at once."""
        if isinstance(counter, SharedWindow):
            credit = max(cell.own - cell.total - cell.reserved for cell in counter.cells)
        else:
            credit = counter.credit
        if credit > slot.open_most[counter.key]:
            what = (
                f"{slot.name} {counter.key.decode()}: {credit} unspent, {slot.open_most[counter.key]} under way at most"
            )
            self.violate("credit", what)

    def _bounded(self, slot: NodeSlot, node: RegionNode) -> None:
        """Cells are at most what is configured; queues at most the live cells and what was just reported."""
        cells = len(node.engine.counters)
        if cells > self.world.history.max_cells:
            self.violate("memory", f"{slot.name}: {cells} cells")
        now_s = self.world.loop.time()
        for link in node.links:
            reports = self._reports.setdefault((slot.index, slot.runs, link.index), [])
            reports.append((now_s, link.stats.reports))
            while len(reports) > 1 and reports[1][0] < now_s - 0.6:
                reports.pop(0)
            # A flush that was overtaken stays until its time comes: some for every recent report.
            recent = self._most_reports[slot.name] = max(
                self._most_reports[slot.name], link.stats.reports - reports[0][1]
            )
            queued = link.queued_flushes
            if queued > 3 * (cells + slot.waiting) + recent + 10:
                self.violate("memory", f"{slot.name}: {queued} flushes wait, {cells} cells, {recent} reports")
            if link.queued_questions > 2 * len(self.world.history.asks):
                self.violate("memory", f"{slot.name}: {link.queued_questions} questions")

    # At the end

    def measure(self) -> None:
        """Over-admission in healthy windows is within the budget."""
        for excess in self.books.excesses.values():
            shard = self.world.shard_of(excess.key)
            if self.books.healthy(excess.key, shard, excess.sequence, excess.window_ms):
                self.violate("budget", excess.what, excess.at_s)


def _told(call: Call, reply: Reply) -> str:
    """A call and its answer: per key what the node said it admitted, and what it was told."""
    if not call.reports:
        return "hears from somebody, of nothing"
    charged = f"; {sum(reply.charged)} of {len(reply.charged)} requests charged" if reply.charged else ""
    keys = [
        f"{report.key.decode()} ({_said(report)} → {_answered(answer)})"
        for report, answer in zip(call.reports, reply.answers, strict=True)
    ]
    return f"hears {call.reports[0].component.decode()}: {', '.join(keys)}{charged}"


def _said(report: Report) -> str:
    if isinstance(report, WindowReport):
        return "; ".join([f"{cell.total} in {cell.sequence}, seen {cell.highest_total_seen}" for cell in report.cells])
    return f"{report.total}"


def _answered(answer: Answer) -> str:
    if isinstance(answer, WindowAnswer):
        return f"{answer.current.own} of {answer.current.region_total} in {answer.sequence}, grant {answer.grant}"
    return f"{answer.own}, arrival {answer.arrival_ms}, grant {answer.grant}"
