"""Time that passes when a test says so."""


class ManualClock:
    """Implements `headgate.clock.Clock`: it stands until it is moved."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError("time passes forwards; use step() for a wall clock that is set back")
        self._now_ms += ms
        self._monotonic_ms += ms

    def step(self, ms: int) -> None:
        """Set the wall clock by `ms`, either way, while no time passes."""
        self._now_ms += ms
