"""Values that rules give to the rest of the program: the match of a descriptor, the version of a rule set, one rule."""

from dataclasses import dataclass, field

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import RuleName, Steps, rule_name, steps_text


class Match:  # noqa: PLW1641 - it is compared, and never a key
    """The limit that applies to one descriptor, and whose counter it is."""

    # No named tuple: one is made for every request that was not seen before, and this takes less time to make.
    __slots__ = ("domain", "key", "limit", "steps")

    def __init__(self, limit: Limit, key: bytes, domain: str, steps: Steps) -> None:
        self.limit = limit
        self.key = key
        """The limit key: domain, rule and matched values, encoded so that no two tuples share a string."""
        self.domain = domain
        self.steps = steps
        """The way to the rule in its domain's tree."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Match):
            return NotImplemented
        return (self.key, self.limit, self.steps) == (other.key, other.limit, other.steps)

    @property
    def rule(self) -> str:
        """The rule for people, e.g. `edge: user=* > path=/login`: in logs and explanations."""
        return f"{self.domain}: {steps_text(self.steps)}"

    @property
    def name(self) -> RuleName:
        """Name of the rule in metrics, logs and answers."""
        return rule_name(self.domain, self.limit.name, self.steps)


@dataclass(frozen=True, slots=True)
class Version:
    """Identity of a rule set: a counter since the start, and a digest of the files, equal wherever they are equal."""

    counter: int
    digest: str

    def __str__(self) -> str:
        return f"{self.counter}-{self.digest[:12]}"


@dataclass(frozen=True, slots=True)
class RuleContent:
    """Content of one path of a domain: a limit, or none, which exempts; wildcards may share one counter."""

    limit: Limit | None = None
    shared: bool = False
    """A wildcard's values share one counter (`share_threshold`)."""
    form: bytes = field(default=b"", compare=False, repr=False)
    """Its canonical form (content.form_of), where that is at hand."""
