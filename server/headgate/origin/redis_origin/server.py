"""One Redis server: scripts by their SHA, on one connection for calls and one for heartbeats.

Two, so that a heartbeat is not queued behind a call that stalls. What goes wrong is
raised as OriginError with the server's name, kept for /readyz, and logged when it
changes: not once per call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.exceptions import (
    AskError,
    MovedError,
    NoScriptError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from headgate.clock import Clock
from headgate.origin.interface import OriginError, OriginTimeout
from headgate.origin.redis_origin.dial import Dialler
from headgate.origin.redis_origin.errors import (
    FILE_NOT_THERE,
    Redirected,
    TryAgain,
    at_first_contact,
    explain,
    is_read_only,
    missing_file,
)
from headgate.origin.redis_origin.link import Command, Lost, RedisLink, Session
from headgate.origin.redis_origin.scripts import Script
from headgate.origin.redis_origin.url import RedisAddress
from headgate.telemetry.bounded import BoundedLogger


@dataclass(frozen=True, slots=True)
class ShardState:
    """State of a server, for people."""

    name: str
    address: str = ""
    connected: bool = False
    role: str = ""
    run_id: str = ""
    error: str = "not connected yet"
    since_ms: int = 0
    """Since when `connected` and `error` are what they are."""


class Server:
    """One Redis server: a connection for calls and one for heartbeats, made again after they failed."""

    def __init__(
        self,
        name: str,
        find: Callable[[], Awaitable[RedisAddress]],
        dialler: Dialler,
        clock: Clock,
        logger: BoundedLogger,
    ) -> None:
        self._find = find
        self._dialler = dialler
        self._clock = clock
        self._logger = logger
        self._address: RedisAddress | None = None
        self._calls = RedisLink(self._dial)
        self._beats = RedisLink(self._dial)
        self._hazards: tuple[str, ...] = ()
        self.state = ShardState(name, since_ms=clock.now_ms())

    async def connect(self) -> None:
        """Make the connections now, rather than with the first call. Raises OriginError."""
        try:
            session, _ = await asyncio.gather(self._calls.session(), self._beats.session())
        except (OriginError, RedisError, OSError, Lost) as error:
            raise self._failed(error) from error
        self._answered(session)

    async def run(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[bytes | int],
        timeout_s: float,
        *,
        own_connection: bool = False,
        asking: bool = False,
    ) -> tuple[Any, bytes]:
        """Run a script, once; its reply, and the epoch of the server that gave it."""
        link = self._beats if own_connection else self._calls
        command: Command = (b"EVALSHA", script.sha, len(keys), *keys, *arguments)
        commands: list[Command] = [(b"ASKING",), command] if asking else [command]
        session = link.made
        until_s = asyncio.get_running_loop().time() + timeout_s
        try:
            if session is None:
                async with asyncio.timeout_at(until_s):
                    session = await link.session()
            reply = (await session.ask(commands, _left_s(until_s)))[-1]
            if isinstance(reply, NoScriptError):
                # Nothing was executed, so this is not a second time.
                again = [(b"SCRIPT", b"LOAD", script.text), *commands]
                loaded, *replies = await session.ask(again, _left_s(until_s))
                # Why it could not be loaded says more than that it is still missing.
                reply = loaded if isinstance(loaded, ResponseError) else replies[-1]
        except TimeoutError as error:
            raise self._timed_out(link, session, timeout_s) from error
        except (OriginError, RedisError, OSError, Lost) as error:
            raise self._failed(error) from error
        if isinstance(reply, ResponseError):
            raise self._refused(link, session, reply) from reply
        self._answered(session)
        return reply, session.epoch

    def leave_unless_at(self, address: RedisAddress) -> None:
        """Another server is the primary now: what was sent to this one may be lost."""
        if self._address is None or self._address == address:
            return
        why = f"{self._address} is no longer the primary: {address} is"
        self._calls.leave(why)
        self._beats.leave(why)
        self._note(why)

    async def close(self) -> None:
        """Close both connections."""
        await asyncio.gather(self._calls.close(), self._beats.close())

    async def _dial(self) -> Session:
        self._address = await self._find()
        session = await self._dialler.dial(self._address)
        self._warn_of(session.hazards)
        return session

    def _warn_of(self, hazards: tuple[str, ...]) -> None:
        """Once for each, and again only when it was gone meanwhile: not with every connection."""
        for hazard in hazards:
            if hazard not in self._hazards:
                # A kind of its own for each server, or the sixth one's would be kept back for good.
                fields = {"server": self.state.name, "address": str(self._address), "reason": hazard}
                self._logger.emit("warning", f"origin_at_risk {self.state.name}", "origin_at_risk", fields)
        self._hazards = hazards

    def _answered(self, session: Session) -> None:
        run_id = session.epoch.decode()
        if self.state.connected and self.state.run_id == run_id:
            return
        self.state = ShardState(
            self.state.name, str(self._address), True, "primary", run_id, "", self._clock.now_ms()
        )  # fmt: skip
        self._logger.info("origin_connected", server=self.state.name, address=self.state.address, run_id=run_id)

    def _failed(self, error: Exception) -> OriginError:
        """Make the error to raise; log it once per change."""
        text = self._first_told(str(error) if isinstance(error, OriginError | Lost) else explain(error))
        self._note(text)
        return OriginError(f"{self.state.name}: {text}")

    def _first_told(self, text: str) -> str:
        """Add a hint about the URL until the server has answered once."""
        if self.state.run_id:
            return text
        tls = self._dialler.tls
        return text + missing_file(tls) if text == FILE_NOT_THERE else at_first_contact(text, tls)

    def _timed_out(self, link: RedisLink, session: Session | None, timeout_s: float) -> OriginTimeout:
        if session is not None:
            link.drop(session, "the connection was dropped after another call's timeout")
        text = self._first_told(f"no {'answer' if session else 'connection'} in {timeout_s * 1000:.0f} ms")
        self._note(text)
        return OriginTimeout(f"{self.state.name}: {text}")

    def _refused(self, link: RedisLink, session: Session, error: ResponseError) -> OriginError:
        text = f"{self.state.name}: {explain(error)}"
        if isinstance(error, MovedError | AskError):
            host = error.host or (self._address.host if self._address else "")
            return Redirected(text, RedisAddress(host, error.port), ask=not isinstance(error, MovedError))
        if isinstance(error, TryAgainError):
            return TryAgain(text)
        if is_read_only(error):
            # Whoever is primary now is found anew.
            link.drop(session, explain(error))
        self._note(explain(error))
        return OriginError(text)

    def _note(self, text: str) -> None:
        if not self.state.connected and self.state.error == text:
            return
        self.state = replace(self.state, connected=False, error=text, since_ms=self._clock.now_ms())
        self._logger.warning("origin_failed", server=self.state.name, reason=text)


def _left_s(until_s: float) -> float:
    return until_s - asyncio.get_running_loop().time()
