"""The question that an explanation answers."""

from dataclasses import dataclass

from headgate.limiter.decision import Entries


@dataclass(frozen=True, slots=True)
class DecisionQuestion:
    """A question about a descriptor around a time, or about one decision by its id."""

    domain: str = ""
    entries: Entries = ()
    at_ms: int = 0
    window_ms: int = 300_000
    number: int | None = None

    @property
    def since_ms(self) -> int:
        """Beginning of the time in question."""
        return self.at_ms - self.window_ms

    @property
    def until_ms(self) -> int:
        """End of it."""
        return self.at_ms + self.window_ms
