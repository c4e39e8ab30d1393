"""Making a connection: TCP or TLS, user, database; then the server must be the one we want.

A primary, never a replica; part of a Cluster when the URL says so, and only then. Its
run id is remembered with the connection: within one connection it can't change, so
every reply's epoch is the one that was asked for when its connection was made.
"""

from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headgate.origin.redis_origin.errors import NotUsable
from headgate.origin.redis_origin.link import Session
from headgate.origin.redis_origin.url import Credentials, RedisAddress, RedisTls, Verify

ROLES: Final = {b"slave": "a replica", b"sentinel": "a Sentinel"}


@dataclass(frozen=True, slots=True)
class Dialler:
    """How the servers of one URL are connected to."""

    credentials: Credentials
    tls: RedisTls | None
    db: int = 0
    cluster: bool = False

    async def dial(self, address: RedisAddress) -> Session:
        """A connection to a primary. Raises NotUsable for a server that must not be used."""
        connection = self.connection(address)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # redis-py's is not typed
            role, info = await ask(connection, ("ROLE",)), await ask(connection, ("INFO", "server"))
            return Session(connection, self._verify(role, _fields(info)))
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    def connection(self, address: RedisAddress) -> Connection:
        """Not connected yet. Never retries and has no timeouts: whoever uses it has."""
        options: dict[str, Any] = {
            "host": address.host,
            "port": address.port,
            "db": self.db,
            "username": self.credentials.user,
            "password": self.credentials.password,
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "retry": Retry(NoBackoff(), 0),
            "health_check_interval": 0,
            "protocol": 2,
        }
        if self.tls is None:
            return Connection(**options)
        return SSLConnection(
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
        if (info.get(b"redis_mode") == b"cluster") != self.cluster:
            raise NotUsable(
                "it is not part of a Cluster: use redis://"
                if self.cluster
                else "it is part of a Cluster: use redis+cluster://"
            )
        return info[b"run_id"]


async def ask(connection: Connection, command: tuple[str, ...]) -> Any:
    """One command on a connection that nobody else uses."""
    await connection.send_command(*command, check_health=False)
    return await connection.read_response()


async def ask_once(dialler: Dialler, address: RedisAddress, command: tuple[str, ...]) -> Any:
    """One command on a connection of its own."""
    connection = dialler.connection(address)
    try:
        await connection.connect()  # type: ignore[no-untyped-call]  # redis-py's is not typed
        return await ask(connection, command)
    finally:
        await connection.disconnect(nowait=True)


def _fields(info: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in info.splitlines())
    return {name: value.strip() for name, _, value in pairs}
