"""Envoy's messages as proto3 JSON: for people with curl, and for callers without gRPC.

Both directions go through the same bytes as gRPC does, so that there is one decision
path. Requests may use camelCase or snake_case; unknown fields are errors.
"""

import json
from typing import Any

from google.protobuf import json_format
from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2

from headgate.errors import BadRequest

RETRY_AFTER = "Retry-After"
OVER_LIMIT = rls_pb2.RateLimitResponse.OVER_LIMIT


def request_from_json(body: bytes) -> bytes:
    """JSON text to a serialized RateLimitRequest, or BadRequest."""
    try:
        text = body.decode()
        if not text.lstrip().startswith("{"):
            # The parser takes an empty list for an empty message.
            raise BadRequest("the body is not a JSON object")
        message = json_format.Parse(text, rls_pb2.RateLimitRequest(), max_recursion_depth=16)
        return message.SerializeToString()
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except (json_format.ParseError, ValueError) as error:
        raise BadRequest(f"the body is not a RateLimitRequest in JSON: {error}") from None


def parse_response(payload: bytes) -> rls_pb2.RateLimitResponse:
    """The message that a handler's answer holds."""
    return rls_pb2.RateLimitResponse.FromString(payload)


def response_to_json(response: rls_pb2.RateLimitResponse) -> str:
    """Zeros are written (`limitRemaining: 0` matters); what the answer does not have is left out."""
    fields: dict[str, Any] = json_format.MessageToDict(response, always_print_fields_with_no_presence=True)
    return json.dumps({name: value for name, value in fields.items() if value})


def response_headers(response: rls_pb2.RateLimitResponse) -> list[tuple[str, str]]:
    """The headers that Envoy would add to the answer of its caller; and on a denial `Retry-After` in any case."""
    headers = [
        (header.key, header.value or header.raw_value.decode("latin-1")) for header in response.response_headers_to_add
    ]
    told = any(name.lower() == RETRY_AFTER.lower() for name, _ in headers)
    if response.overall_code == OVER_LIMIT and not told:
        headers.append((RETRY_AFTER, str(_retry_after_s(response))))
    return headers


def _retry_after_s(response: rls_pb2.RateLimitResponse) -> int:
    """Whole seconds, rounded up and at least one, until the longest of the denials is over."""
    denials = [status.duration_until_reset for status in response.statuses if status.code == OVER_LIMIT]
    return max([1, *(-(-reset.ToMilliseconds() // 1000) for reset in denials)])
