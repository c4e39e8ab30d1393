"""Decisions of nodes: in time, by the policy where there is one, and never a denial of a cost that fits."""

from collections import Counter
from math import inf
from typing import Final, NamedTuple

from headgate.limiter.decision import Charge, Decision, DecisionPath, Kind, denies
from headgate.limiter.limit import Algorithm
from headgate.region.allowance import turn_s
from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.region.refunds import DENIAL_MS
from headgate.region.window_counter import SharedWindow
from headgate.simulation.cell_watch import CellWatch
from headgate.simulation.evidence import Evidence, Watcher
from headgate.simulation.upsets import Upsets
from headgate.simulation.world import NodeSlot

EPSILON_S: Final = 1e-6
MOST_DRIFT: Final = 1.001
"""A turn is timed by its node's clock, which may be slow by half of that."""
KNOWN_FOR_S: Final = 0.5
"""So old at most is what a look is admitted by."""
NOTICED_S: Final = 2.0
"""A heartbeat and its timeout: after so long every node that reaches a shard knows that its clock was set."""
DEGRADED: Final = frozenset({DecisionPath.DEGRADED_LOCAL, DecisionPath.DEGRADED_OPEN, DecisionPath.DEGRADED_CLOSED})


class Asked(NamedTuple):
    """A request when it was asked."""

    slot: NodeSlot
    node: RegionNode
    charges: tuple[Charge, ...]
    at_s: float
    times_ms: tuple[tuple[int, int], ...]
    """The time of each key's shard: as its node knew it, and as it was."""


class DecisionWatch(Watcher):
    """Sees every decision, with what its node knew when it was asked."""

    def __init__(self, evidence: Evidence, cells: CellWatch, upsets: Upsets) -> None:
        super().__init__(evidence)
        self.promised: Counter[tuple[RegionNode, bytes]] = Counter()
        """Cost that each node told its clients to be admitted, by key."""
        self._cells = cells
        self._upsets = upsets

    def decided(self, asked: Asked, cells: list[SharedCounter | None], decision: Decision, unplaced: bool) -> None:
        """`cells` are those that the request met: one may have gone from the table while it waited."""
        world = self._world
        if world.loop.time() - asked.at_s > world.history.deadline_ms / 1000 + EPSILON_S:
            self._violate("deadline", f"{asked.slot.name}: {world.loop.time() - asked.at_s:.6f} s")
        if decision.path in DEGRADED and not unplaced:
            self._degraded(asked)
            self._excuse(asked.charges, cells)
        for charge, counter, (over, _, _) in zip(asked.charges, cells, decision.verdicts, strict=True):
            if charge.kind is Kind.LATE:
                # Charged in any case, if there was room for its key.
                self.promised[asked.node, charge.key] += charge.cost if counter is not None else 0
            elif charge.kind is Kind.PEEK:
                self._peeked(asked, charge, counter, decision)
            elif charge.kind is Kind.TAKE and decision.admitted and not over and not unplaced:
                self.promised[asked.node, charge.key] += charge.cost
            if counter is not None:
                self._cells.observe(asked.slot, counter)
        if decision.path in DEGRADED:
            self._by_policy(asked, decision, unplaced)
        elif not decision.admitted:
            self._denied(asked, decision)

    def demanded(self, charges: tuple[Charge, ...], cells: list[SharedCounter | None]) -> None:
        """Note what a request charges or demands when it is asked, even if it waits: late costs, and refunds."""
        if any(charge.kind is Kind.LATE for charge in charges):
            self._excuse(charges, cells)
        for charge, counter in zip(charges, cells, strict=True):
            if charge.kind is Kind.REFUND and counter is not None:
                self._evidence.demanded[counter.component, charge.key] += charge.cost

    def _excuse(self, charges: tuple[Charge, ...], cells: list[SharedCounter | None]) -> None:
        for charge, counter in zip(charges, cells, strict=True):
            if counter is not None:
                self._evidence.excused.add((counter.component, charge.key))

    def _peeked(self, asked: Asked, peek: Charge, counter: SharedCounter | None, decision: Decision) -> None:
        """Check that no peek is admitted when its node knows that all is used: it is decided as a cost of 1."""
        if not decision.admitted or peek.fails_alone or decision.path is not DecisionPath.LOCAL:
            return  # what shards let in is judged as they answer
        if counter is not None:
            answered_s = self._evidence.answered_s.get((counter.component, peek.key), -inf)
            age_s = self._world.loop.time() - answered_s
            if age_s > KNOWN_FOR_S * MOST_DRIFT:
                self._violate("view", f"{asked.slot.name} let {peek.key.decode()} in by what was so {age_s:.3f} s ago")
        if not isinstance(counter, SharedWindow) or counter.credit:
            return
        limit = peek.limit
        used = counter.current
        if limit.algorithm is Algorithm.SLIDING_WINDOW:
            now_ms = counter.advance(counter.shard.now_ms())
            used += counter.previous * (limit.window_ms - now_ms % limit.window_ms) // limit.window_ms
        if used >= limit.requests_per_unit:
            self._violate("look", f"{asked.slot.name} let {peek.key.decode()} in, and knows of {used}")

    def _degraded(self, asked: Asked) -> None:
        """Note that the request's shards were not healthy from when it was asked until now."""
        for charge, began_ms in zip(asked.charges, asked.times_ms, strict=True):
            index = self._world.shard_of(charge.key)
            times_ms = (*began_ms, self._world.shards[index].key_time_ms(charge.key))
            if self._world.shards[index].clock_steps:
                for time_ms in times_ms:
                    self._truth.disturb(index, time_ms, time_ms)
            else:
                self._truth.disturb(index, min(times_ms), max(times_ms))
            self._evidence.disturb_buckets(index)

    def _by_policy(self, asked: Asked, decision: Decision, unplaced: bool) -> None:
        """`closed` admits nothing; `local` what fits if all do the same; `open` that, or its part of the limit."""
        enforced = not any(charge.shadow or charge.quota for charge in asked.charges)
        enforced &= any(charge.kind is not Kind.REFUND for charge in asked.charges)
        if decision.admitted and decision.path is DecisionPath.DEGRADED_CLOSED and enforced:
            self._violate("policy", f"{asked.slot.name} admitted by a closed policy")
        if not decision.admitted or unplaced or len(asked.charges) > 1 or not asked.charges[0].cost:
            return
        if decision.verdicts[0][0]:
            return  # over, and admitted all the same: in shadow, and so not charged
        limit, counter = asked.charges[0].limit, asked.node.engine.counters.find(asked.charges[0].key)
        if not isinstance(counter, SharedWindow):
            return
        cell = counter.current_cell
        known = cell.others + cell.foreign + max(cell.own, cell.total + cell.reserved)
        if counter.refunds is not None:
            known -= counter.refunds.current.given
        if decision.path is DecisionPath.DEGRADED_LOCAL and known > limit.requests_per_unit:
            self._violate("policy", f"{asked.slot.name} admitted although it knew of {known}")
        nodes = max(1.0, asked.node.live_nodes / 1.5)
        too_many = known - cell.unacked + cell.unacked * nodes > limit.requests_per_unit
        if decision.path is DecisionPath.DEGRADED_LOCAL and too_many:
            self._violate("policy", f"{asked.slot.name} admitted {cell.unacked}, which is too many if all do")
        too_many &= cell.total > max(1, limit.requests_per_unit / nodes)
        if decision.path is DecisionPath.DEGRADED_OPEN and too_many:
            self._violate("policy", f"{asked.slot.name} admitted {cell.total} by an open policy")

    def _denied(self, asked: Asked, decision: Decision) -> None:
        """A denial is never wrong: by the truth it did not fit at some instant since it was asked, or a turn before."""
        if any(self._cannot_judge(asked.node, charge) for charge in asked.charges):
            return
        over = [
            -1 if self._truly_over(asked, charge, began_ms, decision.path) else 0
            for charge, began_ms in zip(asked.charges, asked.times_ms, strict=True)
        ]
        if not denies(asked.charges, over):
            keys = ", ".join(charge.key.decode() for charge in asked.charges)
            self._violate("denial", f"{asked.slot.name} denied {keys} ({decision.path.value}) although all fit")

    def _cannot_judge(self, node: RegionNode, charge: Charge) -> bool:
        """Buckets are judged by what they hold; a counter without an answer yet may be in another time.

        So may one whose shard's clock was just set: its node hears of it with the next heartbeat.
        """
        stepped_s = self._upsets.stepped_s.get(self._world.shard_of(charge.key))
        if stepped_s is not None and self._world.loop.time() - stepped_s < NOTICED_S:
            return True
        if self._world.listed and self._world.clock_was_set(charge.key):
            return True  # it may have come from a shard of another time
        counter = node.engine.counters.find(charge.key)
        if charge.limit.algorithm is Algorithm.GCRA or counter is None:
            return charge.limit.algorithm is Algorithm.GCRA
        if charge.limit.refund and (charge.kind is Kind.LATE or not counter.shard.available):
            return True  # it does not wait, or no shard can tell it of refunds meanwhile
        return not counter.has_answer or not self._truth.is_of_now(charge.key, counter.reset)

    def _truly_over(self, asked: Asked, charge: Charge, began_ms: tuple[int, int], path: DecisionPath) -> bool:
        key, limit = charge.key, charge.limit
        if not limit.requests_per_unit:
            return True
        index = self._world.shard_of(key)
        now_ms = self._world.node_time_ms(asked.node, index)
        # A late cost is counted already.
        past = (Kind.LATE, Kind.REFUND)
        cost = sum(other.cost for other in asked.charges if other.key == key and other.kind not in past)
        times = {*began_ms, now_ms, self._world.shards[index].key_time_ms(key)}
        if min(times) // limit.window_ms < max(times) // limit.window_ms:
            times.add(max(times) // limit.window_ms * limit.window_ms)  # a window's counts weigh most as it begins
        if path in (DecisionPath.LOCAL, DecisionPath.DENY_CACHE):
            # Else credit may have been another request's at that instant.
            cost = max(0, cost - self._credit_now(asked.node, key))
        cost += self._reserved(asked.node, key) + self._evidence.charged_unheard(asked.slot, key)
        if any(self._evidence.used(key, limit, time_ms) + cost > limit.requests_per_unit for time_ms in times):
            return True
        known_s = max(turn_s(limit), DENIAL_MS / 1000) if limit.refund else turn_s(limit)
        return cost > self._evidence.least_room(key, limit, asked.at_s - known_s * MOST_DRIFT)

    def _reserved(self, node: RegionNode, key: bytes) -> int:
        """Cost that the node's own reservations add to the truth."""
        counter = node.engine.counters.find(key)
        if not isinstance(counter, SharedWindow):
            return 0
        cell = counter.current_cell
        return max(0, cell.total + cell.reserved - max(cell.own, cell.total)) + counter.previous_cell.reserved

    def _credit_now(self, node: RegionNode, key: bytes) -> int:
        counter = node.engine.counters.find(key)
        return 0 if counter is None else counter.credit
