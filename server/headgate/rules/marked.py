"""A domain with marks: requests that its rollout concerns are matched against the base rules or the staged ones.

The limit key that a request has under the base rules says which; if it has none there, the one that it has under the
staged rules. So a limit key has one limit on all nodes, and a caller keeps what it was given as the share grows.
"""

from collections.abc import Iterator, Sequence

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import Steps
from headgate.rules.content import added
from headgate.rules.marks import Marks, Side
from headgate.rules.model import Match
from headgate.rules.ruleset import Domain
from headgate.rules.tree import Level


class MarkedDomain(Domain):
    """Implements `Domain` by two: the one in force, and the one that a rollout leads to."""

    __slots__ = ("base", "staged")

    def __init__(self, base: Domain, marks: Marks, staged: Domain | None) -> None:
        # Without a trail: its versions are not those of the base, so every plan is compared.
        super().__init__(
            base.name,
            base.level,
            total=added(base.total, marks.total),
            count=base.count,
            shard_by=base.shard_by,
            request_limits=base.request_limits,
            files=base.files,
            paths=base.paths,
            under=base.under,
        )
        self.base = base
        self.marks = marks
        self.staged = staged
        """The rules that the rollout leads to; None without a rollout."""

    def match(self, entries: Sequence[tuple[str, str]]) -> Match | None:
        """Return the limit of the rules that decide."""
        base = super().match(entries)
        if self.staged is None:
            return base
        staged = self.staged.match(entries)
        return staged if self._is_staged(base, staged) else base

    def exempts(self, entries: Sequence[tuple[str, str]]) -> bool:
        """Tell whether the rules that decide exempt."""
        staged = self.staged
        if staged is not None and self._is_staged(super().match(entries), staged.match(entries)):
            return staged.exempts(entries)
        return super().exempts(entries)

    def side(self, entries: Sequence[tuple[str, str]]) -> Side | None:
        """Tell which rules decide, where they say different things."""
        rollout = self.marks.rollout
        if self.staged is None or rollout is None:
            return None
        base, staged = super().match(entries), self.staged.match(entries)
        if base == staged:
            return None
        return Side(rollout.name, self._is_staged(base, staged))

    def limits(self) -> Iterator[tuple[Steps, Limit]]:
        """The limits in force, and those that the rollout brings."""
        yield from super().limits()
        if self.marks.rollout is not None:
            for path, rule in self.marks.rollout.changes:
                if rule is not None and rule.limit is not None:
                    yield path, rule.limit

    def levels(self) -> tuple[Level, ...]:
        """The first level of the rules in force, and of the staged ones."""
        return (self.level,) if self.staged is None else (self.level, self.staged.level)

    def _is_staged(self, base: Match | None, staged: Match | None) -> bool:
        first, rollout = staged if base is None else base, self.marks.rollout
        return rollout is not None and first is not None and rollout.includes(first.key)
