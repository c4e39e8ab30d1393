"""Making a connection: TCP or TLS, user, database; then the server must be the one we want.

A primary, never a replica; part of a Cluster when the URL says so, and only then. Its
run id is remembered with the connection: within one connection it can't change, so
every reply's epoch is the one that was asked for when its connection was made. The driver only dials: a connection
that was made is taken from it (link.py). User name
and password are found out anew each time, and no error holds them.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from headgate.origin.redis_origin.errors import NotUsable
from headgate.origin.redis_origin.link import Session
from headgate.origin.redis_origin.secrets import Login
from headgate.origin.redis_origin.url import Credentials, RedisAddress, RedisTls, Verify

ROLES: Final = {b"slave": "a replica", b"sentinel": "a Sentinel"}
NOT_VERIFIED: Final = "its TLS certificate is not verified (verify=none): anybody on the way may be the server"
KEEPS_ALL: Final = b"noeviction"
MODES: Final = (b"redis_mode", b"server_mode")
"""The field of INFO that says `cluster`: Redis's name for it, and Valkey's."""


class HandsOver:
    """A connection of the driver that can be taken from it, when it has done what it is for: to connect and log in."""

    _reader: asyncio.StreamReader | None
    _writer: asyncio.StreamWriter | None

    def hand_over(self) -> asyncio.StreamWriter:
        """The stream, which the driver knows nothing of any more."""
        stream = self._writer
        self._reader = self._writer = None
        if stream is None:
            raise ConnectionResetError("closed while it was looked at")
        return stream


class PlainConnection(HandsOver, Connection):
    """Over TCP."""


class TlsConnection(HandsOver, SSLConnection):
    """Over TLS."""


@dataclass(frozen=True, slots=True)
class Dialler:
    """Connects to the servers of one URL."""

    login: Login
    tls: RedisTls | None
    db: int = 0
    cluster: bool = False

    async def dial(self, address: RedisAddress) -> Session:
        """A connection to a primary. Raises NotUsable for a server that must not be used."""
        connection = await self.connect(address)
        try:
            role, info = await ask(connection, ("ROLE",)), await ask(connection, ("INFO", "server"))
            epoch = self._verify(role, _fields(info))
            hazards = await self._hazards(connection)
            return Session(connection.hand_over(), epoch, hazards)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    async def connect(self, address: RedisAddress) -> PlainConnection | TlsConnection:
        """A connection to whatever is there. Never retries and has no timeouts: whoever uses it has."""
        credentials = self.login()
        connection = self._connection(address, credentials)
        try:
            with _not_said(credentials.password):
                await connection.connect()  # type: ignore[no-untyped-call]  # redis-py's is not typed
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _connection(self, address: RedisAddress, credentials: Credentials) -> PlainConnection | TlsConnection:
        options: dict[str, Any] = {
            "host": address.host,
            "port": address.port,
            "db": self.db,
            "username": credentials.user,
            "password": credentials.password,
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "retry": Retry(NoBackoff(), 0),
            "health_check_interval": 0,
            "protocol": 2,
        }
        if self.tls is None:
            return PlainConnection(**options)
        return TlsConnection(
            **options,
            ssl_ca_certs=self.tls.ca,
            ssl_certfile=self.tls.cert,
            ssl_keyfile=self.tls.key,
            ssl_cert_reqs="none" if self.tls.verify is Verify.NONE else "required",
            ssl_check_hostname=self.tls.verify is Verify.HOSTNAME,
        )

    def _verify(self, role: list[Any], info: dict[bytes, bytes]) -> bytes:
        if role[0] != b"master":
            raise NotUsable(f"it is {ROLES.get(role[0], 'no primary')}, and only a primary may be used")
        if (b"cluster" in map(info.get, MODES)) != self.cluster:
            raise NotUsable(
                "it is not part of a Cluster: use redis://"
                if self.cluster
                else "it is part of a Cluster: use redis+cluster://"
            )
        return info[b"run_id"]

    async def _hazards(self, connection: Connection) -> tuple[str, ...]:
        """List what works, and may cost counts or more one day."""
        hazards = [NOT_VERIFIED] if self.tls is not None and self.tls.verify is Verify.NONE else []
        try:
            memory = _fields(await ask(connection, ("INFO", "memory")))
        except ResponseError:
            # Whoever may not know need not be warned.
            return tuple(hazards)
        policy = memory.get(b"maxmemory_policy", KEEPS_ALL)
        if policy != KEEPS_ALL and memory.get(b"maxmemory", b"0") != b"0":
            hazards.append(
                f"its maxmemory-policy is {policy.decode(errors='replace')}: when memory is short it drops keys, "
                "and what they counted is admitted again; use noeviction"
            )
        return tuple(hazards)


async def ask(connection: Connection, command: tuple[str, ...]) -> Any:
    """One command on a connection that nobody else uses."""
    await connection.send_command(*command, check_health=False)
    return await connection.read_response()


async def ask_once(dialler: Dialler, address: RedisAddress, *commands: tuple[str, ...]) -> list[Any]:
    """Commands one after the other, on a connection of their own; their replies."""
    connection = await dialler.connect(address)
    try:
        return [await ask(connection, command) for command in commands]
    finally:
        await connection.disconnect(nowait=True)


@contextlib.contextmanager
def _not_said(password: str | None) -> Iterator[None]:
    """A server that refuses may quote what it was sent, and the driver quotes the server."""
    try:
        yield
    except RedisError as error:
        if password and password in str(error):
            raise NotUsable("it refuses, in words that hold the password") from None
        raise


def _fields(info: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in info.splitlines())
    return {name: value.strip() for name, _, value in pairs}
