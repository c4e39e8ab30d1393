"""Errors of a Redis server, each in one line for a log and for /readyz.

Every exception of the driver ends here, and nothing that is said holds a password.
"""

import os
import re
import socket
import ssl
from typing import Final

from redis import exceptions as redis_errors
from redis.exceptions import ResponseError

from headgate.origin.interface import OriginError
from headgate.origin.redis_origin.scripts import command_at
from headgate.origin.redis_origin.url import RedisAddress, RedisTls

LONGEST_TEXT: Final = 200
"""Length of a server's own words: enough for any error of Redis, too little for a script's traceback."""


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
    (redis_errors.TryAgainError, "the slot is being moved, and its keys are on two nodes (TRYAGAIN)"),
    (redis_errors.ClusterDownError, "the Cluster does not serve this slot (CLUSTERDOWN)"),
)
NO_RIGHT: Final = "the user may not do this (NOPERM)"
# Every server names a forbidden command; one in a script is named by Redis 7.2, 8 and Valkey. Redis 6.2 and 7.0 say,
# each in its own words, in which line of which script it stands.
_NAMED_COMMAND: Final = re.compile(r"run the '([\w|-]+)' command")
_NAMED_LINE: Final = re.compile(r"(?:call to f_|script: )([0-9a-f]{40})(?:\):|, on) @user_script: ?(\d+)")
_FORBIDDEN: Final = ("-NOPERM", "ACL failure in script", "can't run this command")
HINTS: Final = (
    # Redis 6.2 puts what a script ran into inside a text of its own.
    ("-READONLY", READ_ONLY),
    ("-OOM", "it is out of memory (OOM, see maxmemory)"),
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


FILE_NOT_THERE: Final = "a TLS file of the origin URL is not there"
CLOSED: Final = "it closed the connection"
LOST: Final = "the connection was lost"
NO_TLS_THERE: Final = "it does not speak TLS on this port: use redis://, or its TLS port"
CERTIFICATE_WANTED: Final = (
    "it wants a client certificate, and the origin URL has none that it accepts: add cert=FILE&key=FILE"
)
WANT_CERTIFICATE: Final = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA")


def at_first_contact(text: str, tls: RedisTls | None) -> str:
    """Guess what is behind an error of a server that was never reached over TLS, where TLS itself does not say."""
    if tls is None:
        return text
    if text.startswith("no connection in"):
        # Redis waits for the rest of what it takes for a command.
        return f"{text}: over TLS, a port without TLS does that too (for one, use redis://)"
    if text in (CLOSED, LOST) and tls.cert is None:
        return f"{text} at once: it may want a client certificate, and the origin URL has none (cert=FILE&key=FILE)"
    return text


def missing_file(tls: RedisTls | None) -> str:
    """The first file of the origin URL that is not there."""
    for path in (tls.ca, tls.cert, tls.key) if tls is not None else ():
        if path is not None and not os.path.exists(path):
            return f": {path}"
    return ""


def is_read_only(error: ResponseError) -> bool:
    """Say if the server refused a write because it is a replica."""
    return explain(error) == READ_ONLY


def explain(error: BaseException) -> str:
    """One line without the server's name."""
    text = str(error)
    if isinstance(error, OriginError):
        return text
    if isinstance(error, redis_errors.NoPermissionError) or any(words in text for words in _FORBIDDEN):
        return NO_RIGHT + _forbidden_command(text)
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
        return CLOSED
    return _first_line(text) or type(error).__name__


def _forbidden_command(text: str) -> str:
    """`: HSET`, or nothing where the server says neither the command nor where it stands."""
    if named := _NAMED_COMMAND.search(text):
        return f": {named[1].upper()}"
    placed = _NAMED_LINE.search(text)
    command = command_at(placed[1], int(placed[2])) if placed else ""
    return f": {command}" if command else ""


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
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return NO_TLS_THERE
    if isinstance(error, ssl.SSLError) and error.reason in WANT_CERTIFICATE:
        return CERTIFICATE_WANTED
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or 'the handshake failed'}"
    if isinstance(error, FileNotFoundError):
        return FILE_NOT_THERE
    if isinstance(error, ConnectionError):
        return LOST
    # asyncio sums up several addresses in a text of its own.
    return _first_line(error.strerror or str(error))


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:LONGEST_TEXT]
