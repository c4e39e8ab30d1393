"""The client's address behind proxies is one that the client did not choose."""

import types
from typing import Any

import pytest
from headgate_client.middleware.proxies import MAX_HOPS, ClientAddress, by_address


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        pytest.param("203.0.113.7", "", "203.0.113.7", id="nobody in between"),
        pytest.param("203.0.113.7", "1.1.1.1", "203.0.113.7", id="who is no proxy of ours says nothing"),
        pytest.param("10.0.0.1", "203.0.113.7", "203.0.113.7", id="one proxy"),
        pytest.param("10.0.0.1", "1.1.1.1, 203.0.113.7", "203.0.113.7", id="what the client invented"),
        pytest.param("10.0.0.1", "1.1.1.1, 203.0.113.7, 10.0.0.9", "203.0.113.7", id="two proxies"),
        pytest.param("10.0.0.1", "10.0.0.3", "10.0.0.3", id="a client from within"),
        pytest.param("10.0.0.1", "", "10.0.0.1", id="a proxy that says nothing"),
        pytest.param("10.0.0.1", "203.0.113.7:4711", "203.0.113.7", id="with a port"),
        pytest.param("10.0.0.1", "203.0.113.7, garbage", "10.0.0.1", id="garbage ends what can be believed"),
        pytest.param("10.0.0.1", "203.0.113.7,, 10.0.0.2", "10.0.0.2", id="an empty place too"),
        pytest.param("::ffff:10.0.0.1", "203.0.113.7", "203.0.113.7", id="IPv4 in IPv6's clothes"),
        pytest.param("fd00::1", "2001:db8::1234:5678", "2001:db8::/64", id="IPv6 by its network"),
        pytest.param("fd00::1", "[2001:db8:0:1::5]:4711", "2001:db8:0:1::/64", id="IPv6 with a port"),
        pytest.param(None, "203.0.113.7", "203.0.113.7", id="a Unix socket"),
        pytest.param(None, "", "unknown", id="a Unix socket that says nothing"),
        pytest.param("10.0.0.1", "9.9.9.9, " + "10.0.0.2, " * MAX_HOPS, "10.0.0.1", id="longer than any chain"),
    ],
)
def test_by_networks(peer: str | None, forwarded: str, expected: str) -> None:
    address = ClientAddress(trusted=["10.0.0.0/8", "fd00::/8", "unix"])
    assert address.of(peer, forwarded) == expected


@pytest.mark.parametrize(
    ("hops", "forwarded", "expected"),
    [
        (0, "1.1.1.1", "192.0.2.1"),
        (1, "1.1.1.1, 203.0.113.7", "203.0.113.7"),
        (2, "1.1.1.1, 203.0.113.7, 198.51.100.1", "203.0.113.7"),
        (2, "203.0.113.7", "192.0.2.1"),
        (1, "", "192.0.2.1"),
        (1, "garbage", "unknown"),
    ],
)
def test_by_the_number_of_proxies(hops: int, forwarded: str, expected: str) -> None:
    assert ClientAddress(hops=hops).of("192.0.2.1", forwarded) == expected


def test_nobody_is_trusted_unless_told() -> None:
    assert ClientAddress().of("10.0.0.1", "1.1.1.1") == "10.0.0.1"
    assert ClientAddress().of(None, "1.1.1.1") == "unknown"


def test_it_reads_requests() -> None:
    address = ClientAddress(trusted=["10.0.0.0/8"], header="X-Real-IP", ipv6_prefix=128)
    request: Any = types.SimpleNamespace(
        client=types.SimpleNamespace(host="10.0.0.1"), headers={"x-real-ip": "2001:db8::1"}
    )
    assert address(request) == "2001:db8::1"
    request.client = None
    assert address(request) == "unknown"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"trusted": "10.0.0.0/8"}, "trusted: a list of networks"),
        ({"trusted": ["::/0", "10.0.0.1/8"]}, r"trusted\[1\]: a network such as 10.0.0.0/8, or 'unix': 10.0.0.1/8 has"),
        ({"trusted": ["10.0.0.0/8"], "hops": 1}, "hops: give either"),
        ({"hops": -1}, "hops: 0 to 32, got -1"),
        ({"ipv6_prefix": 0}, "ipv6_prefix: 1 to 128 bits, got 0"),
    ],
)
def test_wrong_options_are_named(options: Any, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        ClientAddress(**options)


def test_the_address_is_a_key_by_itself() -> None:
    """As a middleware's `key`: with a name of its own, and the options of ClientAddress."""
    request: Any = types.SimpleNamespace(
        client=types.SimpleNamespace(host="10.0.0.1"), headers={"x-forwarded-for": "1.1.1.1, 203.0.113.7"}
    )
    assert by_address()(request) == {"remote_address": "10.0.0.1"}, "nobody else is believed"
    assert by_address(trusted=["10.0.0.0/8"])(request) == {"remote_address": "203.0.113.7"}
    assert by_address("address", hops=1)(request) == {"address": "203.0.113.7"}
    with pytest.raises(TypeError, match="trusted: a list of networks"):
        by_address(trusted="10.0.0.0/8")
