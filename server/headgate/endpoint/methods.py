"""Raw-bytes method tables for grpc.aio servers: nothing below us parses a message."""

from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from headgate.errors import BadRequest

MethodHandlers = dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]
"""Handlers by path, as in `/package.Service/Method`."""

CODES = {code.value[0]: code for code in grpc.StatusCode}
"""grpcio's own objects by their numbers."""


MAX_MESSAGE_CHARS = 1024
"""Status messages travel in a header; clients and proxies refuse headers of a few KiB."""


def sendable(message: str) -> str:
    """Short enough, and without what UTF-8 can't hold: neither may fail the answer."""
    return message[:MAX_MESSAGE_CHARS].encode(errors="replace").decode()


Request = TypeVar("Request", bound=Message)


def parsed(message: type[Request], payload: bytes) -> Request:
    """Parse a request. Raises BadRequest for bytes that are none."""
    try:
        return message.FromString(payload)
    except DecodeError:
        raise BadRequest(f"malformed {message.DESCRIPTOR.name}") from None


class Methods(grpc.GenericRpcHandler):
    """Methods that a server serves; it answers UNIMPLEMENTED to everything else."""

    def __init__(self, methods: MethodHandlers) -> None:
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self._methods.get(handler_call_details.method)
