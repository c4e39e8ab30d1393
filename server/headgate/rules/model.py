"""What the rest of the program sees of rules: a rule set, and what a descriptor matched in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import RuleName, Steps, rule_name, steps_text
from headgate.rules.request_limits import RequestLimits


class Match(NamedTuple):
    """The limit that applies to one descriptor, and whose counter it is."""

    limit: Limit
    key: bytes
    """The limit key: domain, rule and matched values, encoded so that no two tuples share a string."""
    domain: str
    steps: Steps
    """The way to the rule in its domain's tree."""

    @property
    def rule(self) -> str:
        """The rule for people, e.g. `edge: user=* > path=/login`: in logs and explanations."""
        return f"{self.domain}: {steps_text(self.steps)}"

    @property
    def name(self) -> RuleName:
        """What metrics, logs and answers call the rule."""
        return rule_name(self.domain, self.limit.name, self.steps)


@dataclass(frozen=True, slots=True)
class Version:
    """Which rule set it is: a counter since the start, and a digest of the files, equal wherever they are equal."""

    counter: int
    digest: str

    def __str__(self) -> str:
        return f"{self.counter}-{self.digest[:12]}"


class Rules(Protocol):
    """A compiled rule set: immutable, so that one reference decides one request."""

    @property
    def version(self) -> Version:
        """Which set it is: a number that grows with each, and the digest of its content."""
        ...

    def has_domain(self, domain: str) -> bool:
        """Whether any file names the domain."""
        ...

    def request_limits(self, domain: str) -> RequestLimits | None:
        """What becomes of limits that come with requests; None: as the server is set."""
        ...

    def shard_key(self, domain: str, entries: Sequence[tuple[str, str]]) -> bytes | None:
        """What decides the shard of this descriptor's counter; None: the counter's own key."""
        ...

    def match(self, domain: str, entries: Sequence[tuple[str, str]]) -> Match | None:
        """The limit where the last entry ends, or None: no rule, or a rule without a limit."""
        ...
