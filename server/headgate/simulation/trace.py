"""Events in order, for people: virtual time, who, what. Nothing in it depends on the machine."""

import asyncio


class Tracer:
    """Writes nothing down: for histories that nobody reads."""

    listening = False
    """True if events are to be put into words."""

    def say(self, who: str, what: str) -> None:
        """Take an event."""


class Trace(Tracer):
    """Lines, kept until they are written."""

    listening = True

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, who: str, what: str) -> None:
        now_s = asyncio.get_running_loop().time()
        self.lines.append(f"{now_s:12.6f} s  {who:<10}{what}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
