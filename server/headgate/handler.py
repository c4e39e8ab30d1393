"""One request: bytes, plan, decision, bytes.

`planner.py` makes a plan of the bytes, the engine decides its charges, `answer.py` writes the answer. What is counted
of a decision is counted here, and nowhere else.
"""

import random
from collections.abc import Callable
from typing import Final, Protocol

from headgate.answer import AnswerWriter
from headgate.limiter.blocks import Blocks
from headgate.limiter.decision import Charge, Decision, Kind, PendingDecision
from headgate.limiter.overrides import Overrides
from headgate.limiter.scopes import LimitsOfRegion
from headgate.limiter.shadows import Shadows
from headgate.pending import PendingAnswer
from headgate.plan import AnswerSettings, HandlerStats, Plan
from headgate.planner import Planner
from headgate.rules.ruleset import RuleSet
from headgate.telemetry.tallies import Tallies

__all__ = ["AnswerSettings", "Decider", "HandlerStats", "RateLimitHandler", "Recorder"]

MAX_OVER_LIMIT: Final = 20_000
"""Denials that are remembered until somebody takes them, ten times a second; beyond it they are only counted."""


class Decider(Protocol):
    """The engine behind the handler: of a node on its own, or of a node of a region."""

    def decide(self, charges: tuple[Charge, ...], caller: str = "") -> Decision | PendingDecision:
        """Decide all charges of one request of that caller together: every one of them is charged, or none; late costs
        are charged and refunds given back in any case, and a peek charges nothing. At once, or when a shard has
        answered."""

    def uncharge(self, charges: tuple[Charge, ...]) -> None:
        """Undo costs that were charged, as far as they still count."""


class Recorder(Protocol):
    """The decision log, which is told of every decision."""

    def __call__(self, plan: Plan, decision: Decision) -> int:
        """Note a decision, and return its id."""


class RateLimitHandler:
    """Answers a serialized RateLimitRequest with a serialized RateLimitResponse.

    Every method is called on the loop, or on a thread that holds its lock.
    """

    def __init__(
        self,
        *,
        rules: Callable[[], RuleSet],
        engine: Decider,
        random: random.Random,
        settings: AnswerSettings,
        limits: LimitsOfRegion | None = None,
        overrides: Overrides | None = None,
        blocks: Blocks | None = None,
        shadows: Shadows | None = None,
        record: Recorder | None = None,
        on_unknown_domain: Callable[[str], None] = lambda domain: None,
    ) -> None:
        """`record`: None where nobody keeps a log. `on_unknown_domain` is told of each once, of a bounded number."""
        self.stats = HandlerStats()
        self.tallies = Tallies()
        self._over_limit: list[Charge] = []
        self._rules = rules
        self._engine = engine
        self._record = record
        self._writer = AnswerWriter(settings, random)
        self._planner = Planner(
            settings,
            self.stats,
            self.tallies,
            limits or LimitsOfRegion(),
            Overrides() if overrides is None else overrides,
            Blocks() if blocks is None else blocks,
            Shadows(lambda: 0) if shadows is None else shadows,
            on_unknown_domain,
        )

    def answer(self, payload: bytes, caller: str = "") -> bytes | PendingAnswer:
        """Answer a request of that caller, now or later. Raises RequestError."""
        return self._decide(self._planner.plan(payload, self._rules()), caller)

    # Costs that are known later, in two steps

    def charges(self, payload: bytes) -> tuple[Charge, ...]:
        """Return what a request would be charged on; nothing, where nothing limits it. Raises RequestError."""
        return self._planner.make(payload, self._rules(), late=False).charges

    def reserve(self, payload: bytes, caller: str = "") -> bytes | PendingAnswer:
        """Decide an estimate of that caller: charged if it fits, also under a limit with overdraft."""
        return self._decide(self._planner.make(payload, self._rules(), late=False), caller)

    def charge_late(self, payload: bytes) -> None:
        """Charge what something came to beyond its estimate, whether it fits or not."""
        answer = self._decide(self._planner.make(payload, self._rules(), late=True))
        if isinstance(answer, PendingAnswer):
            answer.on_answer = _ignore_answer

    def uncharge(self, charges: tuple[Charge, ...]) -> None:
        """Undo what something did not come to of its estimate."""
        self._engine.uncharge(charges)

    def take_over_limit(self) -> list[Charge]:
        """Return what was over its limit since this was last called; not all of it, if it is too much."""
        taken, self._over_limit = self._over_limit, []
        return taken

    def _decide(self, plan: Plan, caller: str = "") -> bytes | PendingAnswer:
        if not plan.charges:
            return self._answer_without_charges(plan)
        decision = self._engine.decide(plan.charges, caller)
        if isinstance(decision, Decision):
            return self._answer(plan, decision)
        pending = _PlannedAnswer(self, plan)
        decision.on_decided = pending.decided
        return pending

    def _answer_without_charges(self, plan: Plan) -> bytes:
        shape = plan.shape
        self.stats.admitted[shape.path] += 1
        for tally in shape.others:
            tally.within[shape.path] += 1
        return plan.answer

    def _answer(self, plan: Plan, decision: Decision) -> bytes:
        number = 0 if self._record is None else self._record(plan, decision)
        self._count(plan, decision)
        return self._writer.write(plan, decision, number)

    def _count(self, plan: Plan, decision: Decision) -> None:
        """Count the decision with every rule that it met: whether that rule had room, by the request's path."""
        admitted, path, verdicts = decision.admitted, decision.path, decision.verdicts
        if admitted:
            self.stats.admitted[path] += 1
        else:
            self.stats.denied[path] += 1
        shape = plan.shape
        tallies, extra_costs, near = shape.tallies, shape.extra_costs, shape.near
        for index, charge in enumerate(plan.charges):
            over, remaining, _ = verdicts[index]
            tally, extra = tallies[index], extra_costs[index]
            if shape.refunds and charge.kind is Kind.REFUND:
                tally.refunded += charge.cost
            if not over:
                tally.within[path] += 1
                if extra:
                    tally.within_extra += extra
                if admitted and remaining < near[index]:
                    tally.near += 1
            elif charge.shadow:
                tally.shadow[path] += 1
                tally.shadow_extra += extra
            else:
                tally.over[path] += 1
                tally.over_extra += extra
                if len(self._over_limit) < MAX_OVER_LIMIT:
                    self._over_limit.append(charge)
        for tally in shape.others:
            tally.within[shape.path] += 1


class _PlannedAnswer(PendingAnswer):
    """The answer to a request whose decision comes later."""

    __slots__ = ("_handler", "_plan")

    def __init__(self, handler: RateLimitHandler, plan: Plan) -> None:
        super().__init__()
        self._handler = handler
        self._plan = plan

    def decided(self, decision: Decision) -> None:
        """Write the answer, and hand it on."""
        try:
            if self.context is None:
                answer = self._handler._answer(self._plan, decision)
            else:
                answer = self.context.run(self._handler._answer, self._plan, decision)
        except Exception as error:
            self.on_answer(error)
        else:
            self.on_answer(answer)


def _ignore_answer(_answer: bytes | Exception) -> None:
    """Drop the answer: `charge_late` has no caller to answer."""
