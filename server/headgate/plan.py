"""Plans: all that can be known of a request before it is decided.

Which limits it meets, on which counters, at what cost, and the parts of its answer that never change. Most of that is
the same for all requests that meet the same rules at the same cost, and is kept in a shape that they share; a plan
adds the counters' keys. So a request that was never seen before costs little more than finding its rules.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from headgate.limiter.decision import Charge, Decision, DecisionPath, Entries, Kind, Verdict
from headgate.limiter.limit import Limit
from headgate.limiter.scopes import SlicedCharges
from headgate.rules.model import AnyValue, Route, Rules, Version
from headgate.telemetry.tallies import Tally
from headgate.transport.interface import Undecided
from headgate.wire import ratelimit as wire

PLAN_BYTES: Final = 200
CHARGE_BYTES: Final = 300
"""What the objects of a plan, and of each of its charges, take beside the bytes in them: rounded up."""

MAX_OVER_LIMIT: Final = 20_000
"""Denials that are remembered until somebody takes them, ten times a second; beyond it they are only counted."""

OnDecided = Callable[[Decision], None]


class Decider(Protocol):
    """The engine behind the handler: of a node on its own, or of a node of a region. Decides at once where it can."""

    def ask(self, charges: tuple[Charge, ...], then: OnDecided) -> Decision | None:
        """All charges of one request together: every one of them is charged, or none.

        None: somebody must be asked, and `then` is called with the decision, once, on the loop.
        """
        ...

    def ask_late(self, charges: tuple[Charge, ...], then: OnDecided) -> Decision | None:
        """The same where some are late costs, looks or refunds: late costs are charged and refunds given back in any
        case, looks never charged."""
        ...

    @property
    def quick(self) -> Callable[[Charge], Verdict | None]:
        """The only charge of a request, by what is kept with its key: admitted, or denied as before. None: ask on."""
        ...

    @property
    def quick_all(self) -> Callable[[tuple[Charge, ...]], list[Verdict] | None]:
        """All charges of a request, admitted by what is kept with their keys. None: ask on."""
        ...

    def give_back(self, charges: tuple[Charge, ...]) -> None:
        """Undo costs that were charged, as far as they still count."""
        ...


Ask = Callable[[tuple[Charge, ...], OnDecided], Decision | None]


@dataclass(frozen=True, slots=True)
class Planned:
    """One descriptor of a plan: its charges, or the status that it gets without any."""

    charges: tuple[Charge, ...] = ()
    status: bytes = wire.STATUS_WITHOUT_LIMIT
    unlimited: bool = False
    tallies: tuple[Tally, ...] = ()
    """One per charge; without charges, one for the descriptor."""


class Shape:
    """What plans have in common whose requests meet the same rules at the same cost: all but the keys."""

    __slots__ = (
        "answer",
        "ask",
        "costs_one",
        "denied",
        "fixed",
        "grouped",
        "heads",
        "near",
        "near_first",
        "near_most",
        "others",
        "pairs",
        "path",
        "quick",
        "tallies",
        "tally",
        "templates",
        "trailer",
        "version",
    )

    def __init__(
        self,
        descriptors: list[Planned],
        charges: tuple[Charge, ...],
        trailer: bytes,
        denied_trailer: bytes,
        engine: Decider,
        near_limit_ratio: float,
        version: Version,
        *,
        usual: bool,
    ) -> None:
        self.version = version
        """Of the rule set that it was made with."""
        # Chosen once: a request without late costs is not asked at every hit whether it has any.
        taking = all(charge.kind is Kind.TAKE for charge in charges)
        self.ask: Ask = engine.ask if taking else engine.ask_late
        self.heads = tuple([wire.status_head(charge.limit) for charge in charges])
        self.fixed = tuple([d.status for d in descriptors]) if not all(d.charges for d in descriptors) else None
        self.pairs = _pairs(descriptors)
        """Where two charges, this one and the next, are of one descriptor: a rule's and a request's limit."""
        self.path = DecisionPath.UNLIMITED if any(d.unlimited for d in descriptors) else DecisionPath.NO_RULE
        self.trailer = trailer
        self.denied = denied_trailer + trailer
        """What ends a denial."""
        if any(_asks_again(charge) for charge in charges):
            self.denied += wire.NOT_TO_BE_KEPT
        self.tallies = tuple([tally for d in descriptors if d.charges for tally in d.tallies])
        """One per charge: what its rule counts."""
        self.grouped = tuple(Counter(self.tallies).items())
        """Each of these once, and how many charges it has."""
        self.others = tuple([tally for d in descriptors if not d.charges for tally in d.tallies])
        """What descriptors without a charge are counted in."""
        self.near = tuple([_near(charge.limit, near_limit_ratio) for charge in charges])
        """Per charge: an admission that leaves less is near the limit."""
        self.near_first = self.near[0] if self.near else 0
        self.near_most = max(self.near, default=0)
        self.tally = self.tallies[0] if _is_plain(charges, self.others) else None
        """Of a request with one charge that is over its limit if and only if the request is denied."""
        self.costs_one = not self.others and all(charge.quick and charge.cost == 1 for charge in charges)
        """All of its charges cost 1, and are within their limits if and only if the request is admitted."""
        self.quick = len(charges) if usual and self._is_usual(charges) else 0
        """How many charges what is kept with their keys may decide; 0: something about the request is unusual."""
        self.answer = b"" if charges else b"".join([wire.CODE_OK, *(d.status for d in descriptors), trailer])

        self.templates = self._templates(charges)
        """The charges without their keys, where other keys may take their places; else none."""

    def _templates(self, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
        """Each descriptor has one charge, and of the plain kind: then they differ in their keys alone."""
        plain = not self.pairs and self.fixed is None and type(charges) is not SlicedCharges
        if not plain or not all(charge.kind is Kind.TAKE for charge in charges):
            return ()
        return tuple([charge.on(b"", b"", ()) for charge in charges])

    def _is_usual(self, charges: tuple[Charge, ...]) -> bool:
        """Whether its answer is its statuses, one per charge, and nothing about its charges is unusual."""
        return not self.pairs and self.fixed is None and all(charge.quick for charge in charges)

    def count(self, decision: Decision, over_limit: list[Charge], charges: tuple[Charge, ...]) -> None:
        """Count the decision with every rule that it met: whether that rule had room, by the request's path.

        What was over is put into a list of bounded length.
        """
        admitted, path, verdicts = decision
        if self.costs_one and admitted:
            for tally, charged in self.grouped:
                tally.within[path] += charged
            if min([remaining for _, remaining, _ in verdicts]) < self.near_most:
                for tally, near, (_, remaining, _) in zip(self.tallies, self.near, verdicts, strict=True):
                    tally.near += remaining < near
            return
        for tally, charge, near, (over, remaining, _) in zip(self.tallies, charges, self.near, verdicts, strict=True):
            extra = charge.cost - 1
            if charge.kind is Kind.REFUND:
                tally.refunded += charge.cost
                extra = -1
            if not over:
                tally.within[path] += 1
                tally.within_extra += extra
                tally.near += admitted and remaining < near
            elif charge.shadow:
                tally.shadow[path] += 1
                tally.shadow_extra += extra
            else:
                tally.over[path] += 1
                tally.over_extra += extra
                if len(over_limit) < MAX_OVER_LIMIT:
                    over_limit.append(charge)
        for tally in self.others:
            tally.within[self.path] += 1


class Plan(Undecided):
    """One request, parsed and matched. Where no rule applies there are no charges, and the answer is ready."""

    __slots__ = ("charges", "request_bytes", "shape")

    def __init__(self, shape: Shape, charges: tuple[Charge, ...], request_bytes: int) -> None:
        self.shape = shape
        self.charges = charges
        self.request_bytes = request_bytes

    @property
    def version(self) -> Version:
        """Of the rule set that it was made with."""
        return self.shape.version

    @property
    def size(self) -> int:
        """What it takes, by estimate, with its request."""
        keys = sum([len(charge.key) + len(charge.shard_key) for charge in self.charges])
        # The request counts twice: as the plan's name, and as the entries that its charges keep.
        return PLAN_BYTES + 2 * self.request_bytes + keys + CHARGE_BYTES * len(self.charges) + len(self.shape.answer)


Met = tuple[int, int, tuple[tuple[str, str], ...]]
"""One limit that a request met: the identity of the limit in force, the cost, the way to the rule."""

MOST_SHAPES: Final = 4_096
"""More than most rule sets have rules. When there are more, all are made anew."""

MOST_ALIKE: Final = 4
"""Requests of one length that others are compared with. More would cost those that are like none of them more than
they cost the rest; a length has few, unless there are very many rules."""


class Example(NamedTuple):
    """A request that was planned. Others that differ from it in their last value alone, and that is as long, have its
    plan on another key: they are not even read."""

    before: bytes
    after: bytes
    """What stands around the last value, lengths included."""
    start: int
    end: int
    """Where that stands."""
    rule: AnyValue
    shape: Shape
    key_head: bytes
    key_tail: bytes
    """What stands around it in the limit key."""
    entries: Entries
    """All but the last one."""
    name: str
    """The last one's key."""


class Shapes:
    """The shapes of one rule set, by what requests met."""

    def __init__(self) -> None:
        self._examples: dict[int, list[Example]] = {}
        """By the length of the request. What is scanned has lengths of one byte, an example one descriptor: so it is
        shorter than 300 bytes, and there are no more lengths than that."""
        self._routed: dict[tuple[object, ...], Shape] = {}
        """By cost and routes (rules/model.py): so whoever meets rules for any value is not even matched."""
        self._shapes: dict[tuple[str, tuple[Met, ...]], tuple[Shape, tuple[Limit, ...]]] = {}

    def plan(
        self, domain: str, met: tuple[Met, ...], keys: list[tuple[bytes, bytes, Entries]], request_bytes: int
    ) -> Plan | None:
        """The plan of a request that met these limits on these keys, if its shape is known."""
        known = self._shapes.get((domain, met))
        if known is None:
            return None
        shape = known[0]
        charges = [template.on(*key) for template, key in zip(shape.templates, keys, strict=True)]
        return Plan(shape, tuple(charges), request_bytes)

    def alike(self, payload: bytes) -> Plan | None:
        """The plan of a request that differs from one before in its last value alone."""
        size = len(payload)
        for before, after, start, end, rule, shape, head, tail, entries, name in self._examples.get(size, ()):
            if payload.startswith(before) and payload.endswith(after):
                value = payload[start:end]
                try:
                    text = value.decode()
                except UnicodeDecodeError:
                    return None
                if text in rule.values:
                    return None
                key = head + value + tail
                return Plan(shape, (shape.templates[0].on(key, key, (*entries, (name, text))),), size)
        return None

    def _remember(self, payload: bytes, scanned: wire.Scanned, route: Route, shape: Shape) -> None:
        """For requests that will be like this one."""
        examples = self._examples.setdefault(len(payload), [])
        if len(examples) >= MOST_ALIKE:
            return
        _, ((*entries, (name, value)),), _, end = scanned
        rule, key, tail = route
        size = len(value.encode())
        examples.append(
            Example(
                payload[: end - size],
                payload[end:],
                end - size,
                end,
                rule,
                shape,
                key[: len(key) - tail - size],
                key[len(key) - tail :],
                tuple(entries),
                name,
            )
        )

    def routed(self, rules: Rules, scanned: wire.Scanned, payload: bytes) -> Plan | None:
        """The plan of a request whose descriptors all meet rules for any value, if its shape is known."""
        domain, described, cost, _ = scanned
        request_bytes = len(payload)
        if len(described) == 1:
            entries = described[0]
            route = rules.route(domain, entries)
            shape = None if route is None else self._routed.get((cost, route[0]))
            if route is None or shape is None:
                return None
            self._remember(payload, scanned, route, shape)
            return Plan(shape, (shape.templates[0].on(route[1], route[1], entries),), request_bytes)
        routes: list[object] = [cost]
        keys = []
        for entries in described:
            route = rules.route(domain, entries)
            if route is None:
                return None
            routes.append(route[0])
            keys.append(route[1])
        shape = self._routed.get(tuple(routes))
        if shape is None:
            return None
        charges = [t.on(key, key, entries) for t, key, entries in zip(shape.templates, keys, described, strict=True)]
        return Plan(shape, tuple(charges), request_bytes)

    def keep_routed(self, rules: Rules, scanned: wire.Scanned, shape: Shape) -> None:
        """For requests that will meet the same rules for any value."""
        domain, described, cost, _ = scanned
        routes = [rules.route(domain, entries) for entries in described]
        if None not in routes:
            if len(self._routed) >= MOST_SHAPES:
                self._routed.clear()
            self._routed[(cost, *[route[0] for route in routes if route is not None])] = shape

    def keep(self, domain: str, met: tuple[Met, ...], shape: Shape, limits: tuple[Limit, ...]) -> None:
        """For requests that will meet the same. With the limits, so that no others get their identities."""
        if len(self._shapes) >= MOST_SHAPES:
            self._shapes.clear()
        self._shapes[domain, met] = shape, limits


def _is_plain(charges: tuple[Charge, ...], others: tuple[Tally, ...]) -> bool:
    if len(charges) != 1 or others:
        return False
    charge = charges[0]
    return charge.kind is Kind.TAKE and charge.cost == 1 and not charge.shadow and not charge.quota


def _asks_again(charge: Charge) -> bool:
    """Whether the next request like this must come here even if this one is denied: it is charged, or given back, all
    the same; or there may be room before its time, because somebody gave back."""
    return charge.kind in (Kind.LATE, Kind.REFUND) or bool(charge.limit.refund)


def _near(limit: Limit, ratio: float) -> int:
    """What an admission must leave, not to be near the limit."""
    most = limit.burst or limit.requests_per_unit
    return most - int(most * ratio)


def _pairs(descriptors: list[Planned]) -> tuple[int, ...]:
    """Positions of charges, the last first."""
    found, position = [], 0
    for descriptor in descriptors:
        if len(descriptor.charges) > 1:
            found.append(position)
        position += len(descriptor.charges)
    return tuple(reversed(found))
