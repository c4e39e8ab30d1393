"""One charge of a request on a node of a region: on which counter, and what has become of it."""

from headgate.limiter.decision import TAKE, Charge
from headgate.region.cells import Hold
from headgate.region.counters import SharedCounter


class Leg:
    """One charge of a request, its counter, its outcome, and what it holds while the request waits."""

    __slots__ = ("charge", "counter", "hold", "outcome", "takes")

    def __init__(self, charge: Charge, counter: SharedCounter, outcome: int) -> None:
        self.charge = charge
        self.counter = counter
        self.outcome = outcome
        """The room that remains, or one of outcomes.py."""
        self.takes = charge.kind is TAKE
        """True if the request's admission charges it: not a peek; and a late cost or a refund is done by now."""
        self.hold: Hold | None = None
