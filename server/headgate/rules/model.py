"""Interface of rules to the rest of the program: a rule set, and the match of a descriptor in it."""

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
        """Name of the rule in metrics, logs and answers."""
        return rule_name(self.domain, self.limit.name, self.steps)


@dataclass(frozen=True, slots=True)
class Version:
    """Identity of a rule set: a counter since the start, and a digest of the files, equal wherever they are equal."""

    counter: int
    digest: str

    def __str__(self) -> str:
        return f"{self.counter}-{self.digest[:12]}"


class Rules(Protocol):
    """A compiled rule set: immutable, so that one reference decides one request."""

    @property
    def version(self) -> Version:
        """Identity of the set: a number that grows with each, and the digest of its content."""
        ...

    def has_domain(self, domain: str) -> bool:
        """Return true if any file names the domain."""
        ...

    def request_limits(self, domain: str) -> RequestLimits | None:
        """The domain's policy for limits that come with requests; None: the server's setting decides."""
        ...

    def shard_key(self, domain: str, entries: Sequence[tuple[str, str]]) -> bytes | None:
        """Key that chooses the shard of this descriptor's counter; None: the counter's own key."""
        ...

    def match(self, domain: str, entries: Sequence[tuple[str, str]]) -> Match | None:
        """The limit where the last entry ends, or None: no rule, or a rule without a limit."""
        ...
