"""Errors by whose fault they are, and the one table that maps them to a status.

A request's error carries a message for the caller. Anything that is not a `RequestError` is our fault: it becomes
INTERNAL, never UNKNOWN, because Envoy lets UNKNOWN pass regardless of `failure_mode_deny`.
"""

from enum import IntEnum


class Status(IntEnum):
    """The gRPC status codes that Headgate answers with."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class RequestError(Exception):
    """A request that gets an error instead of a decision; the message is for the caller."""

    status = Status.INTERNAL


class BadRequest(RequestError):
    """The caller's fault: malformed, empty, out of range."""

    status = Status.INVALID_ARGUMENT


class TooLarge(RequestError):
    """The caller's fault: more bytes than the setting allows."""

    status = Status.RESOURCE_EXHAUSTED


class NotFound(RequestError):
    """The caller's fault: it asks for something that isn't served here."""

    status = Status.NOT_FOUND


class Unauthenticated(RequestError):
    """The caller's fault: no token, or one that is not accepted."""

    status = Status.UNAUTHENTICATED


class Forbidden(RequestError):
    """The caller is known, and may not do this."""

    status = Status.PERMISSION_DENIED


class Misconfigured(RequestError):
    """An operator's fault, here or at the caller's end: as both are set up they can't work together."""

    status = Status.FAILED_PRECONDITION


class NotReady(RequestError):
    """No fault: not started yet, or more work pending than is allowed."""

    status = Status.UNAVAILABLE


INTERNAL_MESSAGE = "internal error"


def status_of(error: BaseException) -> tuple[Status, str]:
    """The status and message that a caller sees for an error."""
    if isinstance(error, RequestError):
        return error.status, str(error)
    return Status.INTERNAL, INTERNAL_MESSAGE


class ConfigError(Exception):
    """The operator's fault: a setting, a file or an address that can't be used."""
