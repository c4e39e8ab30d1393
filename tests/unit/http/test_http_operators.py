"""Operators' methods over HTTP: from JSON to JSON, for whoever shows a token, and nobody where that is not enough."""

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from headgate.endpoint.admins import Admins, AdminTokens, Operator
from headgate.errors import BadRequest, Forbidden, NotFound, Unauthenticated
from headgate.transport.http_operators import HttpOperators
from headgate.v1 import keys_pb2

RESET = "/headgate.v1.Keys/Reset"


class Method:
    """Something that is asked, and remembers what and by whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[keys_pb2.ResetRequest, Operator]] = []

    async def __call__(self, payload: bytes, operator: Operator) -> bytes:
        self.asked.append((keys_pb2.ResetRequest.FromString(payload), operator))
        return keys_pb2.ResetResponse(number=7).SerializeToString()


@pytest.fixture
def tokens(tmp_path: Path) -> AdminTokens:
    path = tmp_path / "admins"
    path.write_text("ann=token-of-ann\n")
    return AdminTokens(str(path), structlog.get_logger())


async def call(
    operators: HttpOperators, body: Any, header: str | None = "Bearer token-of-ann", path: str = RESET
) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await operators.call(path, data, header, "http:::1")


async def test_a_method_is_asked_by_who_shows_a_token(tokens: AdminTokens) -> None:
    method = Method()
    operators = HttpOperators({RESET: method}, Admins(tokens, certificates=False))
    body = {"key": {"domain": "edge", "entries": [{"key": "user", "value": "ü"}]}, "why": "x"}
    assert await call(operators, body) == {"number": 7}
    ((request, operator),) = method.asked
    assert (request.key.entries[0].value, request.why, operator) == ("ü", "x", Operator("ann", "http:::1"))
    for header in (None, "Bearer other", "token-of-ann"):
        with pytest.raises(Unauthenticated):
            await call(operators, body, header)
    with pytest.raises(NotFound):
        await call(operators, body, path="/headgate.v1.Keys/Get")
    assert len(method.asked) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"\xff", b'{"nobody": 1}', b'{"key": 1}', b"[" * 5_000])
async def test_what_is_no_request_is_refused(tokens: AdminTokens, body: bytes) -> None:
    method = Method()
    with pytest.raises(BadRequest, match="the body is no ResetRequest"):
        await call(HttpOperators({RESET: method}, Admins(tokens, certificates=False)), body)
    assert method.asked == []


async def test_where_certificates_are_demanded_a_token_is_not_enough(tokens: AdminTokens) -> None:
    for admins in (Admins(tokens, certificates=True), Admins(None, certificates=True)):
        with pytest.raises(Forbidden, match="HTTP has no TLS here"):
            await call(HttpOperators({RESET: Method()}, admins), {})
