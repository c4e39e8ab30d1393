"""What went wrong at a Redis server, in one line for a log and for /readyz.

Every exception of the driver ends here, and nothing that is said holds a password.
"""

import socket
import ssl
from typing import Final

from redis import exceptions as redis_errors
from redis.exceptions import ResponseError

from headgate.origin.interface import OriginError
from headgate.origin.redis_origin.url import RedisAddress

LONGEST_TEXT: Final = 200
"""Of a server's own words: enough for any error of Redis, too little for a script's traceback."""


class Redirected(OriginError):
    """A Cluster's node says that another one has the slot. Nothing was executed."""

    def __init__(self, text: str, address: RedisAddress, *, ask: bool) -> None:
        super().__init__(text)
        self.address = address
        self.ask = ask


class TryAgain(OriginError):
    """A Cluster's node has some of the call's keys and another the rest. Nothing was executed."""


class NotUsable(OriginError):
    """A server that answers, and that must not be used: a replica, or another kind of server."""


READ_ONLY: Final = "it is a replica and takes no writes (READONLY)"

CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (redis_errors.ReadOnlyError, READ_ONLY),
    (redis_errors.BusyLoadingError, "it is loading its data (LOADING)"),
    (redis_errors.OutOfMemoryError, "it is out of memory (OOM, see maxmemory)"),
    (redis_errors.NoPermissionError, "the user may not do this (NOPERM)"),
    (redis_errors.TryAgainError, "the slot is being moved, and its keys are on two nodes (TRYAGAIN)"),
    (redis_errors.ClusterDownError, "the Cluster does not serve this slot (CLUSTERDOWN)"),
)
HINTS: Final = (
    # Redis 6.2 puts what a script ran into inside a text of its own.
    ("-READONLY", READ_ONLY),
    ("-OOM", "it is out of memory (OOM, see maxmemory)"),
    ("-NOPERM", "the user may not do this (NOPERM)"),
    ("MISCONF", "it refuses writes because it can't save to disk (MISCONF)"),
    ("NOREPLICAS", "it refuses writes because it has too few replicas (NOREPLICAS)"),
    ("BUSY ", "it is busy with another script (BUSY)"),
    ("invalid username-password pair", "the user name or password is wrong (WRONGPASS)"),
    ("invalid password", "the user name or password is wrong (WRONGPASS)"),
    ("without any password configured", "it has no password, and the origin URL has one"),
    ("Authentication required", "it wants a password, and the origin URL has none (NOAUTH)"),
    ("DB index is out of range", "it has no such database: the number in the origin URL is too high"),
    ("SELECT is not allowed in cluster mode", "it is part of a Cluster, which has no databases: use redis+cluster://"),
    ("cluster support disabled", "it is not part of a Cluster: use redis://"),
    ("max number of clients reached", "it has no connection left (maxclients)"),
    ("unknown command", "it lacks a command that Headgate needs"),
)


def is_read_only(error: ResponseError) -> bool:
    """Whether the server refused a write because it is a replica."""
    return explain(error) == READ_ONLY


def explain(error: BaseException) -> str:
    """One line without the server's name."""
    text = str(error)
    for kind, hint in CLASSES:
        if isinstance(error, kind):
            return hint
    for words, hint in HINTS:
        if words in text:
            return hint
    cause = _os_error(error)
    if cause is not None:
        return _explain_os_error(cause)
    if isinstance(error, redis_errors.ConnectionError) and "closed" in text:
        return "it closed the connection"
    return _first_line(text) or type(error).__name__


def _os_error(error: BaseException | None) -> OSError | None:
    """The innermost reason that the operating system gave."""
    found = None
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError):
            found = error
        error = error.__cause__ or error.__context__
    return found


def _explain_os_error(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return f"the host name has no address ({error.strerror})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its TLS certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or 'the handshake failed'}"
    if isinstance(error, FileNotFoundError):
        return "a TLS file of the origin URL is not there"
    if isinstance(error, ConnectionError):
        return "the connection was lost"
    # asyncio sums up several addresses in a text of its own.
    return _first_line(error.strerror or str(error))


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:LONGEST_TEXT]
