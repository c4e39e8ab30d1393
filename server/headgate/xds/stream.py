"""The client's side of xDS streams, without any I/O and without a clock: `now_s` is given.

A caller tells what happened (`connected`, `received`, `judged`) and then asks what is to be done: `offered` gives a set
of resources to put into force, `requests` what to send, `wakes_at` when to ask again. One stream follows another; a
machine lives through all of them.

What servers really do, and what is done about it:

- Versions are counters of one server process. Every stream begins with an empty version and nonce.
- All is sent again whenever anything changes. A set that was handed over already is not handed over again, and one that
  was refused is not read again.
- A refusal is answered at once with the same set. It is sent after a wait, which doubles from 1 to 30 s.
- A server that has just started sends parts of the whole. What the streams before had shown, and this one has not yet,
  is held for 30 s; what this stream has shown and dropped goes at once.
- A server that has nothing yet is silent, and an empty set is a set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

FIRST_REFUSAL_S: Final = 1.0
MAX_REFUSAL_S: Final = 30.0
"""Longest wait before a refusal is sent."""
GRACE_S: Final = 30.0
"""Age of a stream in seconds until which what former streams had shown is held."""
MAX_REASON_CHARS: Final = 4096

Protocol = Literal["sotw", "delta"]
Resources = Mapping[str, bytes]
"""Source text by a resource's name."""


@dataclass(frozen=True, slots=True)
class XdsResponse:
    """One message of the server, its resources turned into source text."""

    nonce: str
    resources: Resources
    version: str = ""
    """Only `sotw`."""
    removed: Sequence[str] = ()
    """Only `delta`."""
    problems: Sequence[str] = ()
    """Resources that can't be read at all."""


@dataclass(frozen=True, slots=True)
class XdsRequest:
    """One message to the server."""

    first: bool = False
    """True for the first one of a stream, which names the node."""
    version: str = ""
    nonce: str = ""
    reason: str = ""
    """Refuses the response of this nonce; empty accepts it."""


@dataclass(slots=True)
class _Reply:
    """A reply that is due at some time."""

    at_s: float
    request: XdsRequest


class XdsStream:
    """The client's side of one stream after the other."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._restored: Resources = {}
        self._former: Resources = {}
        self._began_s = 0.0
        self._shown: set[str] = set()
        self._told: dict[str, bytes] | None = None
        self._in_force: Resources | None = None
        self._reply: _Reply | None = None
        self._response: XdsResponse | None = None
        self._good_version = ""
        self._wait_s = FIRST_REFUSAL_S
        self._problems: Sequence[str] = ()

    # What happened

    def restored(self, resources: Resources) -> None:
        """Take what an earlier process had in force, and serves now, for shown by a former stream."""
        self._restored = resources

    def connected(self, now_s: float) -> None:
        """Begin a stream: the first request is due."""
        self._former = self._serving
        self._began_s = now_s
        self._shown = set()
        self._told = None
        self._response = None
        self._good_version = ""
        self._reply = _Reply(now_s, XdsRequest(first=True))

    def received(self, response: XdsResponse, now_s: float) -> None:
        """Take a response. If `offered` has nothing new then, it is answered like the set before it."""
        if self._protocol == "sotw":
            self._told = dict(response.resources)
        else:
            self._told = {**(self._told or {}), **response.resources}
            for name in response.removed:
                self._told.pop(name, None)
        self._shown.update(response.resources, response.removed)
        self._response = response
        if self._wanted(now_s) == self._in_force:
            self._answer(now_s)

    def judged(self, problems: Sequence[str], now_s: float) -> None:
        """Hear what became of the set that was offered: the problems of what was refused."""
        self._problems = problems
        self._answer(now_s)

    # What is to be done

    def offered(self, now_s: float) -> Resources | None:
        """Return a set to put into force, in the order of names; call `judged` after it. None: nothing is new."""
        wanted = self._wanted(now_s)
        if wanted is None or wanted == self._in_force:
            return None
        self._in_force = {name: wanted[name] for name in sorted(wanted)}
        return self._in_force

    def requests(self, now_s: float) -> list[XdsRequest]:
        """Return what is to be sent now."""
        if self._reply is None or now_s < self._reply.at_s:
            return []
        reply, self._reply = self._reply, None
        return [reply.request]

    def wakes_at(self) -> float | None:
        """Return when there may be something to do, if the server says nothing until then."""
        times = [self._reply.at_s] if self._reply is not None else []
        if self._held():
            times.append(self._began_s + GRACE_S)
        return min(times, default=None)

    @property
    def names_held(self) -> list[str]:
        """Resources of former streams that this one has not shown, and that are still in force."""
        return sorted(self._held())

    # Sets and replies

    def _held(self) -> Resources:
        """Resources of former streams that are in force and that this stream has not shown."""
        serving = self._serving
        return {name: text for name, text in self._former.items() if name not in self._shown and name in serving}

    @property
    def _serving(self) -> Resources:
        return self._restored if self._in_force is None else self._in_force

    def _wanted(self, now_s: float) -> Resources | None:
        if self._told is None:
            return None
        if now_s >= self._began_s + GRACE_S:
            return self._told
        return {**self._held(), **self._told}

    def _answer(self, now_s: float) -> None:
        """Make the reply to the last response, if it has none yet."""
        response, self._response = self._response, None
        if response is None:
            return
        problems = [*response.problems, *self._problems]
        if not problems:
            self._good_version = response.version
            self._wait_s = FIRST_REFUSAL_S
            self._reply = _Reply(now_s, XdsRequest(version=response.version, nonce=response.nonce))
            return
        reason = "\n".join(problems)[:MAX_REASON_CHARS]
        refusal = XdsRequest(version=self._good_version, nonce=response.nonce, reason=reason)
        self._reply = _Reply(now_s + self._wait_s, refusal)
        self._wait_s = min(MAX_REFUSAL_S, 2 * self._wait_s)
