"""A request that is read by hand is the one that protobuf reads, whatever the bytes."""

import pytest
from headgate.errors import BadRequest
from headgate.wire import ratelimit as wire
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest
from hypothesis import given
from hypothesis import strategies as st

BOUNDS = wire.RequestBounds(max_descriptors=4, max_entries=3)
TEXTS = st.one_of(st.text(max_size=6), st.sampled_from(["", "x" * 119, "x" * 120, "x" * 128, "é" * 70]))
ENTRIES = st.builds(lambda key, value: RateLimitDescriptor.Entry(key=key, value=value), TEXTS, TEXTS)
DESCRIPTORS = st.builds(lambda entries: RateLimitDescriptor(entries=entries), st.lists(ENTRIES, max_size=4))
HITS = st.sampled_from([0, 0, 1, 2, 127, 128, 70_000])


def wrapped(value: int) -> RateLimitDescriptor:
    descriptor = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key="a", value="b")])
    descriptor.hits_addend.value = value
    return descriptor


REQUESTS = st.builds(
    lambda domain, descriptors, hits: RateLimitRequest(
        domain=domain, descriptors=descriptors, hits_addend=hits
    ).SerializeToString(),
    TEXTS,
    st.lists(st.one_of(DESCRIPTORS, DESCRIPTORS, st.builds(wrapped, HITS)), max_size=5),
    HITS,
)


Shown = tuple[str, list[tuple[object, ...]]]


def shown(request: wire.Request) -> Shown:
    """All of it, to be compared."""
    return request.domain, [(d.entries, d.cost, d.override, d.refund, d.names_cost) for d in request.descriptors]


def read(payload: bytes) -> Shown | str:
    """What protobuf makes of it."""
    try:
        return shown(wire._parse_with_protobuf(payload, BOUNDS))
    except BadRequest as error:
        return str(error)


def scan_request(payload: bytes) -> Shown | None:
    """What is read by hand."""
    scanned = wire.scan(payload, BOUNDS)
    return None if scanned is None else shown(scanned)


def holds(payload: bytes) -> None:
    scanned = scan_request(payload)
    assert scanned is None or scanned == read(payload)


@given(REQUESTS)
def test_of_every_request_both_say_the_same(payload: bytes) -> None:
    holds(payload)


@given(REQUESTS, st.data())
def test_of_every_damaged_request_too(payload: bytes, data: st.DataObject) -> None:
    """Cut short, a byte changed, bytes put in: what still is a request is the same one for both."""
    if payload:
        at = data.draw(st.integers(0, len(payload) - 1))
        byte = data.draw(st.one_of(st.sampled_from([0, 8, 10, 18, 24, 127, 128, 255]), st.integers(0, 255)))
        damaged = [payload[:at], payload[:at] + bytes([byte]) + payload[at + 1 :], payload[:at] + bytes([byte])]
        for variant in (*damaged, payload[:at] + bytes([byte]) + payload[at:], payload + payload[at:]):
            holds(variant)


@given(st.binary(max_size=40))
def test_of_garbage_too(payload: bytes) -> None:
    holds(payload)
    holds(b"\x0a\x01d\x12" + payload)


@pytest.mark.parametrize(
    "name", ["shop", "a-shop-with-a-name-that-is-long/rule/0/match/0/shop.example.com/of-a-tenant"]
)
def test_a_route_of_envoy_gateways_is_read_by_hand(name: str) -> None:
    """Entries and descriptors of 128 bytes or more, of texts that are shorter."""
    route = f"httproute/default/{name}"
    pairs = ((route, route), ("masked_remote_address", "10.0.0.0/8"), ("remote_address", "10.1.2.3"))
    descriptor = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=key, value=value) for key, value in pairs])
    request = RateLimitRequest(domain="default/eg/http", descriptors=[descriptor] * 2)
    scanned = scan_request(request.SerializeToString())
    assert scanned is not None
    assert scanned == read(request.SerializeToString())


@pytest.mark.parametrize("hits", [0, 1, 100])
@pytest.mark.parametrize("descriptors", [1, 4])
def test_the_usual_request_is_read_by_hand(descriptors: int, hits: int) -> None:
    """Or nothing would have been won."""
    entries = [RateLimitDescriptor.Entry(key="user", value="alice"), RateLimitDescriptor.Entry(key="é", value="ü")]
    request = RateLimitRequest(
        domain="edge", descriptors=[RateLimitDescriptor(entries=entries)] * descriptors, hits_addend=hits
    )
    scanned = scan_request(request.SerializeToString())
    assert scanned == ("edge", [((("user", "alice"), ("é", "ü")), hits or 1, None, False, hits > 0)] * descriptors)
