"""Bugs to plant, each the simpler rule that somebody might write. Nothing outside tests knows of them.

A mutation takes a MonkeyPatch, and changes production code with it. Each is found by the
history named beside it (test_mutations.py), which is green without it.
"""

import asyncio
import copy
from collections.abc import Callable
from typing import Any, Final

import pytest
from headgate.limiter.decision import Charge
from headgate.lines import Line
from headgate.origin import allowances
from headgate.origin.allowances import Allowances, Holding
from headgate.origin.bucket_record import BucketRecord
from headgate.origin.keyspace import LIMIT
from headgate.origin.operations.heartbeat import Presence, Pulse
from headgate.origin.operations.move_records import MovingRecord, TakeRecords
from headgate.origin.placement import KeptPlacement
from headgate.origin.protocol import BucketReport, CellReport, Demand, Report, WindowReport
from headgate.origin.shard_memory import ShardMemory
from headgate.origin.window_cells import CellRecord, NodeComponent
from headgate.origin.window_record import WindowRecord
from headgate.region import engine, pause, policy, session
from headgate.region.allowance import turn_s
from headgate.region.breaker import Breaker, BreakerState
from headgate.region.bucket_counter import SharedBucket
from headgate.region.cells import CellView, Hold
from headgate.region.counters import SharedCounter
from headgate.region.deadline import Deadlines
from headgate.region.engine import RegionalEngine
from headgate.region.lateness import Lateness
from headgate.region.list_keeper import ShardListKeeper
from headgate.region.node import RegionNode
from headgate.region.pause import Pause
from headgate.region.question_order import QuestionOrder
from headgate.region.refunds import Refunds
from headgate.region.session import ShardSession
from headgate.region.shard_clock import ShardClock
from headgate.region.shard_link import ShardLink
from headgate.region.shard_lists import ShardLists
from headgate.region.urgency import Urgency
from headgate.region.waiting import Decided, Question
from headgate.region.window_counter import SharedWindow
from headgate.simulation.network import NetworkedOrigin
from headgate.simulation.world import World

Patch = pytest.MonkeyPatch
Planted = Callable[[Patch], None]


def max_merge(patch: Patch) -> None:
    """What is known is the larger of own and told, instead of what others did plus the own part."""

    def known(cell: CellView) -> int:
        return max(cell.highest_total_seen, cell.total + cell.reserved) + cell.foreign

    patch.setattr(CellView, "known", property(known))


def one_component_per_node(patch: Patch) -> None:
    """All runs of a node id share a component."""
    start = RegionNode.__init__

    def careless(node: RegionNode, *args: Any, run: bytes, **rest: Any) -> None:
        start(node, *args, run=run.split(b"-")[0], **rest)

    patch.setattr(RegionNode, "__init__", careless)


def one_component_per_run(patch: Patch) -> None:
    """A key that was evicted and comes back starts at 0 in its old component."""
    new_counter = RegionalEngine._new_counter

    def careless(engine: RegionalEngine, *given: Any) -> Any:
        counter = new_counter(engine, *given)
        counter.component = engine._region.run
        return counter

    patch.setattr(RegionalEngine, "_new_counter", careless)


def add_instead_of_set(patch: Patch) -> None:
    """A report adds to its component."""
    merge = WindowRecord._merge

    def careless(record: WindowRecord, component: NodeComponent, cell: CellReport) -> None:
        if cell.sequence == record.sequence and cell.total:
            cell = cell._replace(total=component.own + cell.total)
        merge(record, component, cell)

    patch.setattr(WindowRecord, "_merge", careless)


def drop_on_failure(patch: Patch) -> None:
    """What a failed call carried is not reported again."""

    def careless(session: ShardSession, under_way: Any, now_s: float) -> None:
        for counter in under_way.counters:
            counter.failed()

    patch.setattr(ShardSession, "_requeue", careless)


def drop_on_full_buffer(patch: Patch) -> None:
    """What waits to be reported has so much room, and what does not fit is let go."""
    flush = ShardSession.flush

    def careless(session: ShardSession, counter: Any, urgency: Urgency) -> None:
        if session.queued_flushes < 3:
            flush(session, counter, urgency)

    patch.setattr(ShardSession, "flush", careless)


def the_cell_of_now(patch: Patch) -> None:
    """A charge belongs to the window in which its answer comes."""
    hold = SharedWindow.hold

    def careless(counter: SharedWindow, cost: int, now_ms: int, charged: Any = None) -> Hold:
        return hold(counter, cost, now_ms)

    patch.setattr(SharedWindow, "hold", careless)


def charge_on_deny(patch: Patch) -> None:
    """A denied request pays for those of its keys that had room."""
    settle = SharedWindow.settle

    def careless(counter: SharedWindow, hold: Hold, *, commit: bool) -> None:
        settle(counter, hold, commit=True)

    patch.setattr(SharedWindow, "settle", careless)


def forget_to_refill(patch: Patch) -> None:
    """Nobody tells a shard again what it lost."""
    patch.setattr(ShardSession, "lost_memory", lambda session, reason, now_s: None)


def doubt_what_was_not_answered(patch: Patch) -> None:
    """A heartbeat that was not answered is taken for one that the shard has forgotten."""
    beat = RegionNode.beat

    async def careless(node: RegionNode, link: ShardLink) -> None:
        before_ms = link.session.beat_ms
        await beat(node, link)
        if before_ms and link.session.beat_ms == before_ms:
            link.session._memory = b"in doubt"

    patch.setattr(RegionNode, "beat", careless)


def names_stay_as_they_are(patch: Patch) -> None:
    """Nobody looks at the name of a shard's memory."""
    beaten = ShardSession.beaten

    def careless(session: ShardSession, pulse: Pulse, sent_s: float, now_s: float) -> None:
        beaten(session, pulse._replace(memory=b"the same"), sent_s, now_s)

    patch.setattr(ShardSession, "beaten", careless)


def breaker_not_rearmed(patch: Patch) -> None:
    """A probe that fails is the last one."""
    open_for = Breaker._open

    def careless(breaker: Breaker, reason: str) -> None:
        probing = breaker.state is BreakerState.HALF_OPEN
        open_for(breaker, reason)
        if probing:
            breaker._open_until_s += 1e6

    patch.setattr(Breaker, "_open", careless)


def rollback_race(patch: Patch) -> None:
    """A charge that was not used is released at the origin, while others may be spending it."""
    settle, start = SharedWindow.settle, World.__init__
    worlds: list[World] = []

    def noted(world: World, *args: Any) -> None:
        start(world, *args)
        worlds.append(world)

    def release(counter: SharedWindow, sequence: int, cost: int) -> None:
        record = worlds[-1].shards[counter.shard.index].record(counter.key)
        if isinstance(record, WindowRecord) and record.sequence == sequence:
            component = record._component(counter.component)
            cost = min(cost, component.own)
            component.own -= cost
            record.current.region_total -= cost

    def careless(counter: SharedWindow, hold: Hold, *, commit: bool) -> None:
        settle(counter, hold, commit=commit)
        if not commit and hold.cell is not None and hold.cell.own > hold.cell.total:
            asyncio.get_running_loop().call_later(0.001, release, counter, hold.cell.sequence, hold.cost)

    patch.setattr(World, "__init__", noted)
    patch.setattr(SharedWindow, "settle", careless)


def spend_offered_credit(patch: Patch) -> None:
    """Credit that a call offers to the shard is spent here meanwhile."""
    must_ask = RegionalEngine._must_ask

    def careless(engine: RegionalEngine, counter: Any, *rest: Any) -> int:
        counter.credit_offered = 0
        return must_ask(engine, counter, *rest)

    patch.setattr(RegionalEngine, "_must_ask", careless)


def own_clock(patch: Patch) -> None:
    """Nodes decide by their own clocks."""
    patch.setattr(ShardClock, "learn", lambda clock, time_ms, sent_s, received_s: setattr(clock, "known", False))
    patch.setattr(ShardClock, "certain", lambda clock, window_ms: True)


def own_clock_for_ever(patch: Patch) -> None:
    """What a node took for the time before any answer is never taken back."""
    learn = ShardClock.learn

    def careless(clock: ShardClock, *args: Any) -> None:
        before_ms = clock._now_ms
        learn(clock, *args)
        clock._now_ms = max(before_ms, clock._now_ms)

    patch.setattr(ShardClock, "learn", careless)


def charge_overtaken_calls(patch: Patch) -> None:
    """A call that comes twice is charged twice."""
    report_on = WindowRecord.report

    def careless(record: WindowRecord, report: WindowReport, time_ms: int) -> int:
        number = record._component(report.component).number
        if report.number <= number:
            record._component(report.component).number = report.number - 1
        return report_on(record, report, time_ms)

    patch.setattr(WindowRecord, "report", careless)
    patch.setattr(WindowRecord, "missing", lambda record, report, charged, cost: cost)


def count_the_lost_twice(patch: Patch) -> None:
    """After a loss what comes back is added to what others say was there."""

    def careless(count: CellRecord, n: int, m: int, sent: int) -> None:
        count.region_total += m - n

    patch.setattr(CellRecord, "raise_component", careless)


def forget_the_dead(patch: Patch) -> None:
    """After a loss only components come back: what the dead had admitted is gone."""
    patch.setattr(CellRecord, "restore", lambda count, seen: None)


def believe_in_lost_credit(patch: Patch) -> None:
    """After a loss, what a shard no longer knows to be this node's is taken for somebody else's."""
    learn = CellView.learn

    def careless(cell: CellView, own: int, total: int, foreign: int) -> bool:
        others = total - own
        remembers = learn(cell, own, total, foreign)
        cell.others = max(cell.others, others)
        return remembers

    patch.setattr(CellView, "learn", careless)


def no_deadline(patch: Patch) -> None:
    """Requests wait for their answers, however long that takes."""
    patch.setattr(Deadlines, "_ring", lambda deadlines: None)


def closed_admits(patch: Patch) -> None:
    """Without the origin everything passes."""
    patch.setattr(policy, "admits", lambda counter, limit, cost, now_ms, live_nodes: True)


def alone_without_the_origin(patch: Patch) -> None:
    """Every node admits all that is left, as if there were no other."""
    patch.setattr(policy, "weighted", lambda own, live_nodes: own)


def open_on_every_node(patch: Patch) -> None:
    """`open` admits up to the limit on every node, as if there were no other."""
    patch.setattr(policy, "ceiling", lambda limit, live_nodes: limit.requests_per_unit)


def nothing_is_reserved(patch: Patch) -> None:
    """A request that waits holds nothing until it commits."""
    patch.setattr(
        SharedWindow,
        "hold",
        lambda counter, cost, now_ms, charged=None: Hold(counter.component, None, cost, 0, counter.limit),
    )


def the_new_window_alone(patch: Patch) -> None:
    """After a window's end the shard, which may still be in it, is not told what was spent there."""
    report_of = SharedWindow.report

    def careless(counter: SharedWindow, *args: Any, **rest: Any) -> Any:
        counter.ahead_of_shard = False
        return report_of(counter, *args, **rest)

    patch.setattr(SharedWindow, "report", careless)


def sent_for_another_window(patch: Patch) -> None:
    """What was sent for a window in which the shard was not, counts as sent for the one in which it is."""
    restate = SharedWindow._restate

    def careless(counter: SharedWindow, sequence: int) -> None:
        sent = counter.current_cell.highest_sent
        restate(counter, sequence)
        counter.current_cell.highest_sent = max(counter.current_cell.highest_sent, sent)

    patch.setattr(SharedWindow, "_restate", careless)


def trust_what_was_told(patch: Patch) -> None:
    """After a loss a shard is told the highest total heard of, not what is certain to have been there."""
    learn = CellView.learn

    def careless(cell: CellView, own: int, total: int, foreign: int) -> bool:
        seen = max(cell.highest_total_seen, total)
        remembers = learn(cell, own, total, foreign)
        cell.highest_total_seen = seen
        return remembers

    patch.setattr(CellView, "learn", careless)


def time_never_goes_back(patch: Patch) -> None:
    """What a node takes for a shard's time never goes back, though the shard's clock was set back."""
    patch.setattr(ShardClock, "_set_by_ms", lambda clock, least, most: 0)


def records_from_the_future(patch: Patch) -> None:
    """A record that a wrong clock wrote stays, until the clock is there."""
    patch.setattr(WindowRecord, "_begin_anew", lambda record, sequence: None)


def buckets_from_the_future(patch: Patch) -> None:
    """A bucket that a wrong clock filled stays full, until the clock is there."""
    patch.setattr(BucketRecord, "_come_to", lambda record, now_ms, latest_ms: None)


def the_same_component_again(patch: Patch) -> None:
    """A counter that begins anew goes on with the component that it had."""
    begin_anew = SharedCounter.begin_anew

    def careless(counter: SharedCounter) -> None:
        component = counter.component
        begin_anew(counter)
        counter.component = component

    patch.setattr(SharedCounter, "begin_anew", careless)


def answers_from_before_the_step(patch: Patch) -> None:
    """An answer counts, though its call was sent before the shard's clock was set."""
    heard = ShardSession.heard

    def careless(session: ShardSession, *args: Any) -> bool:
        heard(session, *args)
        return True

    patch.setattr(ShardSession, "heard", careless)


def unreadable_is_a_denial(patch: Patch) -> None:
    """What the shard could not read is taken for what did not fit."""

    unanswered = Question.unanswered

    def careless(question: Question, now_s: float) -> Decided | None:
        if not question.places:
            return unanswered(question, now_s)  # it was never sent
        question._refused(now_s)
        return question.request.close(question, now_s)

    patch.setattr(Question, "unanswered", careless)


def without_pauses(patch: Patch) -> None:
    """No bug: no node ever pauses, and nobody tries again.

    With pauses most keys at their limit are asked for rarely, and a bug in what is said between node and shard needs
    more luck to be seen. So those are looked for without, and those of pauses with them.
    """
    patch.setattr(Pause, "answered", lambda paused, *call, **rest: False)
    patch.setattr(ShardSession, "_try_again", lambda session, under_way, now_s, decided: None)


def pauses_of_ten(patch: Patch) -> None:
    """A pause takes ten times as long."""
    patch.setattr(pause, "turn_s", lambda limit: 10 * turn_s(limit))
    patch.setattr(pause, "FIRST_PAUSE_S", 10 * pause.FIRST_PAUSE_S)


def all_room_to_everybody(patch: Patch) -> None:
    """A run is given what it wants, whatever others hold."""
    offer = Allowances.offer

    def generous(known: Allowances, holding: Holding, want: int, room: int, *rest: Any, **more: Any) -> tuple[int, int]:
        others = known.held - holding.held
        known.previous_sum -= others
        given = offer(known, holding, want, room, *rest, **more)
        known.previous_sum += others
        return given

    patch.setattr(Allowances, "offer", generous)


def charge_beside_nothing(patch: Patch) -> None:
    """A charge fits if the counts have room, whatever is set aside."""
    patch.setattr(Allowances, "free", lambda known, room, precision: room)


def allowances_per_cell(patch: Patch) -> None:
    """A new window knows nothing of who holds what."""
    roll = WindowRecord._roll

    def careless(record: WindowRecord, sequence: int) -> None:
        before = record.sequence
        roll(record, sequence)
        if record.sequence != before:
            record.allowances = Allowances()
            for component in record.components.values():
                component.held = 0

    patch.setattr(WindowRecord, "_roll", careless)


def count_the_offer(patch: Patch) -> None:
    """The shard counts what it gives, and not what was left: a node whose reply is lost goes on with that."""
    offer = Allowances.offer

    def careless(known: Allowances, holding: Holding, *rest: Any, **more: Any) -> tuple[int, int]:
        left = holding.held
        given = offer(known, holding, *rest, **more)
        known.sum -= left
        holding.held -= left
        return given

    patch.setattr(Allowances, "offer", careless)


def report_before_giving_up(patch: Patch) -> None:
    """A report says that the node gives up what is beyond its need, and the node goes on with all of it."""
    sent = SharedCounter.sent

    def careless(counter: SharedCounter, number: int, wanted: int, leaving: bool, now_s: float) -> Report:
        before = counter.spendable(now_s)
        report = sent(counter, number, wanted, leaving, now_s)
        counter.allowance = before
        return report

    patch.setattr(SharedCounter, "sent", careless)


def allowances_end_before_reports(patch: Patch) -> None:
    """A shard forgets what it set aside after half a second, while what was spent under it is still to be reported."""
    patch.setattr(allowances, "GENERATION_MS", 250)


def take_what_was_wanted(patch: Patch) -> None:
    """A node whose call was not answered takes it that it got what it wanted."""
    failed, sent = SharedCounter.failed, SharedCounter.sent
    wants: dict[SharedCounter, int] = {}

    def noted(counter: SharedCounter, *call: Any) -> Report:
        report = sent(counter, *call)
        wants[counter] = max(0, report.want)
        return report

    def careless(counter: SharedCounter) -> None:
        failed(counter)
        counter.allowance += wants.pop(counter, 0)

    patch.setattr(SharedCounter, "sent", noted)
    patch.setattr(SharedCounter, "failed", careless)


def renew_overtaken(patch: Patch) -> None:
    """A call that comes twice says again what is left of the allowance, which is less by then."""
    report_on = WindowRecord.report

    def careless(record: WindowRecord, report: WindowReport, time_ms: int) -> int:
        component = record._component(report.component)
        number, component.number = component.number, 0
        merged = report_on(record, report, time_ms)
        component.number = max(component.number, number)
        return merged

    patch.setattr(WindowRecord, "report", careless)


def own_rest_is_free(patch: Patch) -> None:
    """A charge fits beside what others hold, and not beside what its own node does."""
    fits = WindowRecord.fits

    def careless(record: WindowRecord, report: WindowReport, now_ms: int, missing: int) -> bool:
        rest = record._component(report.component).held
        record.allowances.sum -= rest
        fitted = fits(record, report, now_ms, missing)
        record.allowances.sum += rest
        return fitted

    patch.setattr(WindowRecord, "fits", careless)


def late_costs_beside_the_allowance(patch: Patch) -> None:
    """A late cost leaves the allowance as it is: it is spent a second time."""
    late = RegionalEngine._late

    def careless(engine: RegionalEngine, counter: SharedCounter, *rest: Any) -> int:
        before = counter.allowance
        remaining = late(engine, counter, *rest)
        counter.allowance = before
        return remaining

    patch.setattr(RegionalEngine, "_late", careless)


def unmerged_is_free(patch: Patch) -> None:
    """What was spent in a window that the shard has yet to reach is neither counted nor set aside."""
    report_on = WindowRecord.report

    def careless(record: WindowRecord, report: WindowReport, now_ms: int) -> int:
        record.come_to(now_ms)
        cells = tuple([cell for cell in report.cells if cell.sequence <= record.sequence])
        return report_on(record, report._replace(cells=cells), now_ms)

    patch.setattr(WindowRecord, "report", careless)


def allowances_of_another_limit(patch: Patch) -> None:
    """A node whose limit was lowered goes on with what it held."""
    patch.setattr(SharedCounter, "void", lambda counter: None)


def hold_on_after_a_loss(patch: Patch) -> None:
    """A shard that lost its memory gives out all room, though some nodes still spend what it has forgotten."""
    terms = ShardSession.window_terms

    def careless(session: ShardSession, *of: Any) -> Any:
        session.within = False
        return terms(session, *of)

    patch.setattr(ShardSession, "window_terms", careless)


def late_answers_are_answers(patch: Patch) -> None:
    """A shard that answers late for everybody is asked by everybody, up to their deadlines."""
    patch.setattr(Lateness, "missed", lambda lateness, missed, sent, now_s: "")


def count_what_was_not_sent(patch: Patch) -> None:
    """Every question whose deadline passes while a call is late counts against the shard, sent or not."""
    missed_deadline = ShardLink.missed_deadline

    def careless(link: ShardLink) -> None:
        missed_deadline(link)
        now_s = link._monotonic()
        if now_s - link._sent_s > link._deadline_s:
            too_many = link._lateness.missed(1, link.stats.wants, now_s)
            if too_many:
                link.breaker.trip(too_many)

    patch.setattr(ShardLink, "missed_deadline", careless)


def one_line_for_all(patch: Patch) -> None:
    """Questions go to a shard in the order in which they come, whoever asks."""
    line_of = QuestionOrder.line_of

    def only_one(order: QuestionOrder, _caller: str) -> Line[Question]:
        return line_of(order, "")

    patch.setattr(QuestionOrder, "line_of", only_one)


def credit_in_buckets(patch: Patch) -> None:
    """What was charged in a bucket and not spent pays for a later admission, though it has drained by then."""

    def credit(counter: SharedBucket) -> int:
        return max(0, counter.own - counter.total - counter._reserved)

    def missing(record: BucketRecord, report: BucketReport, charged: int, cost: int) -> int:
        spent = report.total + report.reserved + charged
        return max(0, cost - max(0, record._component(report.component).own - spent))

    patch.setattr(SharedBucket, "credit", property(credit))
    patch.setattr(SharedBucket, "_void_credit", lambda counter, most: None)
    patch.setattr(BucketRecord, "missing", missing)


def try_again_and_keep(patch: Patch) -> None:
    """A request that tries again keeps what it took, though it asks the shard all the same."""
    try_again = Question.try_again

    def careless(question: Question, now_s: float) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SharedWindow, "unspend", lambda counter, cost: None)
            return try_again(question, now_s)

    patch.setattr(Question, "try_again", careless)


def late_if_it_fits(patch: Patch) -> None:
    """A late cost is charged only if it fits."""

    def careless(engine: RegionalEngine, counter: SharedCounter, charge: Charge, now_s: float) -> int:
        limit = charge.limit
        now_ms = counter.come_to(limit, now_s)
        missing = counter.missing(charge.cost)
        remaining = counter.room(now_ms) - missing
        if remaining >= 0:
            counter.spend(charge.cost, missing, now_ms)
            counter.flush()
        return remaining

    patch.setattr(RegionalEngine, "_late", careless)


def late_costs_wait(patch: Patch) -> None:
    """A late cost asks the shard as others do: without an answer in time nothing of it is kept."""
    patch.setattr(RegionalEngine, "_late", RegionalEngine._take)


def peek_for_nothing(patch: Patch) -> None:
    """A peek is decided as a cost of 0 would be: everything being used does not stop it."""
    peek = RegionalEngine._peek

    def careless(engine: RegionalEngine, counter: SharedCounter, charge: Charge, now_s: float) -> int:
        nothing = Charge(charge.key, charge.limit, 0, late=False)
        return peek(engine, counter, nothing, now_s)

    patch.setattr(RegionalEngine, "_peek", careless)


def looks_by_old_views(patch: Patch) -> None:
    """What decides a look is as old as what decides a cost may be."""
    patch.setattr(session, "LOOK_USABLE_S", session.USABLE_S)


def reset_by_deleting(patch: Patch) -> None:
    """A reset empties the record, and nothing else remembers it."""

    def careless(record: WindowRecord, reset: int) -> bool:
        if reset > record.__dict__.get("emptied", 0):
            record.__dict__["emptied"] = reset
            record._begin_anew(record.sequence)
        return True

    patch.setattr(WindowRecord, "belongs", careless)


def keep_what_was_not_reported(patch: Patch) -> None:
    """A node that hears of a reset keeps what it has of the key, and reports it under the new number."""

    def careless(counter: SharedCounter, number: int) -> None:
        counter.reset = number
        counter.forget_denial()

    patch.setattr(SharedCounter, "reset_to", careless)


def subtract_by_own_view(patch: Patch) -> None:
    """A node subtracts what it demands back, from what it knows, without waiting for the shard."""
    demand = SharedCounter.demand

    def careless(counter: SharedCounter, cost: int, now_ms: int, now_s: float) -> None:
        demand(counter, cost, now_ms, now_s)
        if isinstance(counter, SharedWindow) and counter.refunds is not None:
            counter.refunds.current.region += min(cost, max(0, counter.current))
            counter._recount()

    patch.setattr(SharedCounter, "demand", careless)


def refunds_without_a_cap(patch: Patch) -> None:
    """The shard gives back whatever is demanded, however much of it was charged."""
    refund = WindowRecord._refund

    def careless(record: WindowRecord, component: NodeComponent, demand: Demand) -> None:
        beyond, record.current.region_total = record.current.region_total, 2**40
        refund(record, component, demand)
        record.current.region_total = beyond

    patch.setattr(WindowRecord, "_refund", careless)


def refunds_per_call(patch: Patch) -> None:
    """A demand is "give 5 back": the shard does so whenever it is told."""
    refund = WindowRecord._refund

    def careless(record: WindowRecord, component: NodeComponent, demand: Demand) -> None:
        component.demanded = component.previous_demanded = 0
        refund(record, component, demand)

    patch.setattr(WindowRecord, "_refund", careless)


def one_net_counter(patch: Patch) -> None:
    """What is given back is taken out of the node's own total, and only the rest is told."""

    def careless(counter: SharedCounter, cost: int, now_ms: int, now_s: float) -> None:
        if isinstance(counter, SharedWindow):
            counter.unspend(min(cost, counter.current_cell.total))
        counter.shard.flush(counter, Urgency.LATER)

    patch.setattr(SharedCounter, "demand", careless)


def refunds_restored_by_a_floor(patch: Patch) -> None:
    """After a loss every node vouches for all that it knew to have been given back, whoever demanded it."""
    report = Refunds.report

    def careless(refunds: Refunds, sequence: int, *, remembers: bool) -> tuple[Demand, ...]:
        for cell in (refunds.current, refunds.previous):
            cell.own = max(cell.own, cell.region)
        return report(refunds, sequence, remembers=remembers)

    patch.setattr(Refunds, "report", careless)


def denials_outlive_refunds(patch: Patch) -> None:
    """What a node knows denies for as long as it would if nothing were ever given back."""
    patch.setattr(engine, "_may_have_room", lambda counter, now_s: False)


def teach_resets_once(patch: Patch) -> None:
    """A shard that loses its memory again while it is being refilled is not taught resets again."""
    lost_memory = ShardSession.lost_memory

    def careless(session: ShardSession, reason: str, now_s: float) -> None:
        if not session._refill:
            lost_memory(session, reason, now_s)

    patch.setattr(ShardSession, "lost_memory", careless)


def count_every_list(patch: Patch) -> None:
    """Whoever names a list is taken to name another one."""

    def careless(presence: Presence, run: bytes, shard_list: bytes) -> int:
        presence.lists[run] = shard_list
        return len(presence.lists) - 1

    patch.setattr(Presence, "place_by", careless)


def lists_outlive_their_runs(patch: Patch) -> None:
    """What a run said of its list is kept when the run is gone."""
    beat = Presence.beat

    def careless(presence: Presence, run: bytes, heard_ms: int, new_name: bytes, now_ms: int) -> None:
        kept = dict(presence.lists)
        beat(presence, run, heard_ms, new_name, now_ms)
        presence.lists = kept

    patch.setattr(Presence, "beat", careless)


def straight_to_the_new_list(patch: Patch) -> None:
    """A key that moves is asked for where it belongs, and not where its record may still be."""
    patch.setattr(NetworkedOrigin, "shard_before", NetworkedOrigin.shard_of)


def copy_without_sealing(patch: Patch) -> None:
    """A record stays open where it is while it is opened elsewhere."""

    def careless(operation: TakeRecords, memory: ShardMemory, name: bytes, now_ms: int) -> MovingRecord | None:
        key = name.removeprefix(LIMIT)
        record = memory.records.get(key)
        return None if record is None else MovingRecord(name, memory.expiry[key] - now_ms, copy.deepcopy(record))

    patch.setattr(TakeRecords, "_take", careless)


def begin_where_keys_leave(patch: Patch) -> None:
    """A record that is not there begins where its key leaves."""
    patch.setattr(ShardListKeeper, "leaving", lambda keeper, index, counters: ())


def no_fence(patch: Patch) -> None:
    """A record begins by whatever list a node has."""
    patch.setattr(KeptPlacement, "goes_by", lambda kept, number: True)


def over_before_all_have_moved(patch: Patch) -> None:
    """The former list is over as soon as keys begin to move."""
    patch.setattr(ShardLists, "_has_moved", lambda lists, name: True)


def leave_behind_what_was_let_go_of(patch: Patch) -> None:
    """Counters that the node has let go of stay with the shard that their keys have left."""
    patch.setattr(ShardSession, "unfinished", lambda session: ())


OF_THEIR_OWN: Final[tuple[Planted, ...]] = (
    late_costs_beside_the_allowance,
    unmerged_is_free,
    allowances_of_another_limit,
    hold_on_after_a_loss,
    the_new_window_alone,
    teach_resets_once,
    late_answers_are_answers,
    count_what_was_not_sent,
    count_every_list,
    lists_outlive_their_runs,
    straight_to_the_new_list,
    copy_without_sealing,
    begin_where_keys_leave,
    no_fence,
    over_before_all_have_moved,
    leave_behind_what_was_let_go_of,
)
"""Those that chance seldom meets: each has a history of its own."""

OF_PAUSES: Final = (pauses_of_ten, try_again_and_keep)
"""Those that are looked for in histories with pauses."""

ALL: Final[tuple[Planted, ...]] = (
    max_merge,
    one_component_per_node,
    one_component_per_run,
    all_room_to_everybody,
    charge_beside_nothing,
    allowances_per_cell,
    count_the_offer,
    report_before_giving_up,
    allowances_end_before_reports,
    take_what_was_wanted,
    renew_overtaken,
    own_rest_is_free,
    credit_in_buckets,
    add_instead_of_set,
    drop_on_failure,
    drop_on_full_buffer,
    charge_on_deny,
    forget_to_refill,
    doubt_what_was_not_answered,
    names_stay_as_they_are,
    breaker_not_rearmed,
    rollback_race,
    spend_offered_credit,
    own_clock,
    own_clock_for_ever,
    charge_overtaken_calls,
    count_the_lost_twice,
    forget_the_dead,
    believe_in_lost_credit,
    no_deadline,
    closed_admits,
    alone_without_the_origin,
    open_on_every_node,
    nothing_is_reserved,
    the_cell_of_now,
    sent_for_another_window,
    trust_what_was_told,
    time_never_goes_back,
    records_from_the_future,
    buckets_from_the_future,
    the_same_component_again,
    answers_from_before_the_step,
    unreadable_is_a_denial,
    pauses_of_ten,
    try_again_and_keep,
    late_if_it_fits,
    late_costs_wait,
    peek_for_nothing,
    looks_by_old_views,
    reset_by_deleting,
    keep_what_was_not_reported,
    subtract_by_own_view,
    refunds_without_a_cap,
    refunds_per_call,
    one_net_counter,
    refunds_restored_by_a_floor,
    denials_outlive_refunds,
)
