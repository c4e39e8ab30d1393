"""Operators' methods over HTTP, for the page: the path of a method of `admin_grpc`, its messages as JSON, and a token.

Few of them: one key, and callers who are shut out. Who calls is known by a token of `admin_token_file`, in a header
that no other site's page can send; the method itself checks and logs what it does, as over gRPC.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pool, json_format
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headgate.endpoint.admins import Admins
from headgate.endpoint.message_json import as_json
from headgate.errors import BadRequest, NotFound
from headgate.transport.admin import Method

NOT_SERVED: Final = "operators' methods are not served here: set admin_grpc and admin_token_file"


class HttpOperators:
    """Methods for operators, from JSON to JSON."""

    def __init__(self, methods: Mapping[str, Method], admins: Admins) -> None:
        self._methods = methods
        self._admins = admins

    async def call(self, path: str, body: bytes, authorization: str | None, peer: str) -> dict[str, Any]:
        """Carry a method out. Raises what it raises, BadRequest, Unauthenticated, Forbidden, NotFound."""
        operator = self._admins.identify_by_token(authorization, peer)
        method = self._methods.get(path)
        if method is None:
            raise NotFound(NOT_SERVED)
        described = descriptor_pool.Default().FindMethodByName(path[1:].replace("/", "."))
        request = _parsed(GetMessageClass(described.input_type)(), body)
        answer = await method(request.SerializeToString(), operator)
        return as_json(GetMessageClass(described.output_type).FromString(answer))


def _parsed(message: Message, body: bytes) -> Message:
    try:
        told = json.loads(body)
        if not isinstance(told, dict):
            raise ValueError("it is no object")
        return json_format.ParseDict(told, message, max_recursion_depth=8)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no {message.DESCRIPTOR.name}: {error}") from None
