"""The wire: checked requests in, and answers whose bytes are protobuf's own."""

import contextlib
import re

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.protobuf.wrappers_pb2 import UInt64Value
from headgate.errors import BadRequest
from headgate.limiter.limit import Limit, Unit
from headgate.wire import ratelimit as wire
from headgate_client.wire.envoy.config.core.v3.base_pb2 import HeaderValue
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from hypothesis import given
from hypothesis import strategies as st

Entry = RateLimitDescriptor.Entry
USER = RateLimitDescriptor(entries=[Entry(key="user", value="alice")])
UINT32 = st.integers(0, 2**32 - 1)


def request(*descriptors: RateLimitDescriptor, domain: str = "edge", hits: int = 0) -> bytes:
    return RateLimitRequest(domain=domain, descriptors=descriptors, hits_addend=hits).SerializeToString()


@pytest.mark.parametrize(
    ("request_hits", "own", "cost"),
    [(0, None, 1), (7, None, 7), (7, 3, 3), (7, 0, 0), (0, 0, 0), (0, 2**32 - 1, 2**32 - 1)],
)
def test_the_cost_is_the_descriptors_own_else_the_requests_else_one(
    request_hits: int, own: int | None, cost: int
) -> None:
    descriptor = RateLimitDescriptor(entries=[Entry(key="user", value="alice")])
    if own is not None:
        descriptor.hits_addend.CopyFrom(UInt64Value(value=own))
    parsed = wire.parse_request(request(descriptor, hits=request_hits))
    assert parsed == wire.Request("edge", (wire.Descriptor((("user", "alice"),), cost, None),))


def test_an_override_is_a_limit_of_its_own() -> None:
    descriptor = RateLimitDescriptor(
        entries=[Entry(key="user", value="alice")],
        limit=RateLimitDescriptor.RateLimitOverride(requests_per_unit=42, unit="HOUR"),
    )
    assert wire.parse_request(request(descriptor)).descriptors[0].override == Limit(42, Unit.HOUR)


def with_hits(value: int) -> RateLimitDescriptor:
    return RateLimitDescriptor(entries=[Entry(key="a")], hits_addend=UInt64Value(value=value))


def with_unit(unit: int) -> RateLimitDescriptor:
    descriptor = RateLimitDescriptor(entries=[Entry(key="a")])
    descriptor.limit.MergeFromString(b"\x08\x01\x10" + wire.varint(unit))
    return descriptor


UNITS = "SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6)"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xff", "malformed RateLimitRequest: not a valid protobuf message"),
        (request(USER)[:-3], "malformed RateLimitRequest: not a valid protobuf message"),
        (b"", "domain must not be empty"),
        (request(USER, domain=""), "domain must not be empty"),
        (request(), "descriptors must not be empty: a request needs at least one"),
        (request(USER, RateLimitDescriptor()), "descriptors[1].entries must not be empty"),
        (
            request(RateLimitDescriptor(entries=[Entry(key="a"), Entry(value="v")])),
            "descriptors[0].entries[1].key must not be empty",
        ),
        (
            request(with_hits(2**32)),
            "descriptors[0].hits_addend is 4294967296: accepted are 0 to 4294967295",
        ),
        (request(USER, with_unit(0)), f"descriptors[1].limit.unit is 0: accepted are {UNITS}"),
        (request(with_unit(7)), f"descriptors[0].limit.unit is 7: accepted are {UNITS}"),
        (request(with_unit(99)), f"descriptors[0].limit.unit is 99: accepted are {UNITS}"),
    ],
)
def test_bad_requests_are_named(payload: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=f"^{re.escape(reason)}$"):
        wire.parse_request(payload)


def test_a_descriptor_may_say_that_its_hits_are_given_back() -> None:
    back = RateLimitDescriptor(entries=[Entry(key="a")], is_negative_hits=True)
    parsed = wire.parse_request(request(USER, back)).descriptors
    assert [(descriptor.refund, descriptor.cost) for descriptor in parsed] == [(False, 1), (True, 1)]


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_bad_request(payload: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert wire.parse_request(payload).domain


@given(
    over=st.booleans(),
    limit=UINT32,
    unit=st.sampled_from([unit for unit in Unit if unit]),
    name=st.text(max_size=300),
    remaining=st.one_of(UINT32, st.sampled_from([0, 1, 127, 128, 16383, 16384, (1 << 28) - 1, 1 << 28])),
    reset_ms=st.integers(0, 400 * 86_400_000),
)
def test_a_status_is_written_as_protobuf_writes_it(
    over: bool, limit: int, unit: Unit, name: str, remaining: int, reset_ms: int
) -> None:
    head = wire.status_head(Limit(limit, unit, name=name))
    written = wire.encode_status(head.over if over else head.ok, remaining, reset_ms)
    expected = RateLimitResponse(
        statuses=[
            RateLimitResponse.DescriptorStatus(
                code=RateLimitResponse.OVER_LIMIT if over else RateLimitResponse.OK,
                current_limit=RateLimitResponse.RateLimit(
                    requests_per_unit=limit, unit=RateLimitResponse.RateLimit.Unit.Name(unit), name=name
                ),
                limit_remaining=remaining,
                duration_until_reset=Duration(seconds=reset_ms // 1000, nanos=reset_ms % 1000 * 1_000_000),
            )
        ]
    )
    assert written == expected.SerializeToString()


@given(
    headers=st.lists(st.tuples(st.text(min_size=1, max_size=140), st.text(min_size=1, max_size=140)), max_size=4),
    body=st.binary(max_size=300),
)
def test_headers_and_body_are_written_as_protobuf_writes_them(headers: list[tuple[str, str]], body: bytes) -> None:
    expected = RateLimitResponse(
        response_headers_to_add=[HeaderValue(key=key, value=value) for key, value in headers], raw_body=body
    )
    assert wire.encode_headers(headers) + wire.encode_raw_body(body) == expected.SerializeToString()


def test_dynamic_metadata_arrives_as_a_struct() -> None:
    metadata = {"tier": "gold", "weight": 2.5, "tags": ["a", True, None], "nested": {"x": 1}}
    answer = RateLimitResponse.FromString(wire.encode_dynamic_metadata(metadata))
    assert MessageToDict(answer.dynamic_metadata) == metadata


def test_a_window_of_several_units_states_no_unit() -> None:
    head = wire.status_head(Limit(5, Unit.MINUTE, 5))
    answer = RateLimitResponse.FromString(wire.encode_status(head.ok, 1, 1))
    assert answer.statuses[0].current_limit.unit == RateLimitResponse.RateLimit.UNKNOWN
