"""What can't be meant is refused with the argument's name, before anything is sent."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from headgate_client import AsyncHeadgate, Backoff, Descriptor, Headgate, Tls
from headgate_client.testing import FakeServer

from tests.client.support import Make

ADDRESS = "127.0.0.1:8081"


@pytest.mark.parametrize(
    ("descriptors", "entries", "options", "complaint"),
    [
        ((), {}, {}, "descriptors: none is given"),
        (({"user": "alice"},), {}, {}, "descriptors: a list of descriptors, got one that is not in a list"),
        ((Descriptor({"user": "alice"}),), {}, {}, "descriptors: a list of descriptors, got one"),
        (("user",), {}, {}, "descriptors: a list of mappings, got str 'user'"),
        ((7,), {}, {}, "descriptors: a list of mappings, got int 7"),
        (([],), {}, {}, "descriptors: the list is empty"),
        ((["user"],), {}, {}, "descriptors[0]: a mapping or a list of pairs, got str 'user'"),
        (([{"user": "alice"}, {}],), {}, {}, "descriptors[1]: has no entries"),
        (([{"user": 7}],), {}, {}, "descriptors[0]['user']: a value is a str, got int 7"),
        (([[("user", "alice", "x")]],), {}, {}, "descriptors[0]: a pair of a key and a value, got tuple"),
        (([{"": "alice"}],), {}, {}, "descriptors[0]: a key is empty"),
        (([{7: "alice"}],), {}, {}, "descriptors[0]: a key is a str, got int 7"),
        (([Descriptor({"user": "a"}, hits=-1)],), {}, {}, "descriptors[0].hits: 0 to 4294967295, got -1"),
        ((), {"user": 7}, {}, "user: a value is a str, got int 7"),
        ((), {"user": None}, {}, "user: a value is a str, got NoneType None"),
        ((), {"user": "\ud800"}, {}, "user: can't be sent as UTF-8: surrogates not allowed at character 0"),
        (([{"user": "alice"}],), {"org": "acme"}, {}, "descriptors: a list is given and so is 'org'"),
        ((), {"user": "a"}, {"cost": -1}, "cost: 0 to 4294967295, got -1"),
        ((), {"user": "a"}, {"cost": 2**32}, "cost: 0 to 4294967295, got 4294967296"),
        ((), {"user": "a"}, {"cost": True}, "cost: an int, got bool True"),
        ((), {"user": "a"}, {"cost": 1.5}, "cost: an int, got float 1.5"),
        ((), {"user": "a"}, {"timeout": 0}, "timeout: seconds, above 0, got 0"),
        ((), {"user": "a"}, {"timeout": "1"}, "timeout: a number of seconds, got str '1'"),
        ((), {"user": "a"}, {"on_error": "opne"}, "on_error: one of 'open', 'closed', 'raise', got 'opne'"),
    ],
)
def test_a_wrong_argument_of_a_call_is_named(
    make_fake: Make, headgate_server: FakeServer, descriptors: Any, entries: Any, options: Any, complaint: str
) -> None:
    client = make_fake()
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(complaint)}"):
        client.check(*descriptors, **entries, **options)
    assert headgate_server.requests == []


@pytest.mark.parametrize(
    ("arguments", "options", "complaint"),
    [
        (("", "edge"), {}, "addr: '' names no port"),
        (("localhost", "edge"), {}, "addr: 'localhost' names no port"),
        (("localhost:0", "edge"), {}, "addr: 'localhost:0' names no port"),
        (("localhost:99999", "edge"), {}, "addr: 'localhost:99999' names no port"),
        ((":8081", "edge"), {}, "addr: ':8081' names no host"),
        (("::1:8081", "edge"), {}, "addr: '::1:8081' names no host; with IPv6 it is [address]:port"),
        (("http://localhost:8081", "edge"), {}, "addr: 'http://localhost:8081' is a URL"),
        (("a:1,b:2", "edge"), {}, "addr: 'a:1,b:2' has a comma in it; several addresses are a list"),
        (("unix:", "edge"), {}, "addr: 'unix:' names no socket"),
        (("dns:///headgate", "edge"), {}, "addr: 'dns:///headgate' names no port"),
        ((7, "edge"), {}, "addr: a str or a list of them, got int 7"),
        (([], "edge"), {}, "addr: the list is empty"),
        (([ADDRESS, 7], "edge"), {}, "addr[1]: a str, got int 7"),
        ((ADDRESS, ""), {}, "domain: is empty"),
        ((ADDRESS, None), {}, "domain: a str, got NoneType None"),
        ((ADDRESS, "edge"), {"timeout": -1}, "timeout: seconds, above 0, got -1"),
        ((ADDRESS, "edge"), {"timeout": math.inf}, "timeout: seconds, above 0, got inf"),
        ((ADDRESS, "edge"), {"timeout": math.nan}, "timeout: seconds, above 0, got nan"),
        ((ADDRESS, "edge"), {"connect_timeout": 0}, "connect_timeout: seconds, above 0, got 0"),
        ((ADDRESS, "edge"), {"keep_denials": -1}, "keep_denials: seconds, 0 or more, got -1"),
        ((ADDRESS, "edge"), {"on_error": None}, "on_error: one of 'open', 'closed', 'raise', got None"),
        ((ADDRESS, "edge"), {"on_degraded": "log"}, "on_degraded: a function, got str 'log'"),
        ((ADDRESS, "edge"), {"tls": True}, "tls: a headgate_client.Tls, got bool"),
        ((ADDRESS, "edge"), {"backoff": 1}, "backoff: a headgate_client.Backoff, got int"),
        ((ADDRESS, "edge"), {"token": 7}, "token: a str or a function that returns one, got int"),
        ((ADDRESS, "edge"), {"token": "secret\n"}, "token: printable ASCII without spaces"),
    ],
)
@pytest.mark.parametrize("kind", [Headgate, AsyncHeadgate])
def test_a_wrong_argument_of_a_client_is_named(kind: Any, arguments: Any, options: Any, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(complaint)}") as caught:
        kind(*arguments, **options)
    assert "secret" not in str(caught.value), "no secret is repeated"


def test_half_a_pair_and_files_that_are_not_there_are_errors_of_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a client certificate is a pair: cert is given and key is not"):
        Tls(cert="client.crt")
    with pytest.raises(ValueError, match="a client certificate is a pair: key is given and cert is not"):
        Tls(key="client.key")
    with pytest.raises(OSError, match=r"nowhere\.pem"):
        Headgate(ADDRESS, "edge", tls=Tls(ca=str(tmp_path / "nowhere.pem")))
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ValueError, match=r"key\.pem holds no certificate of an authority, in PEM form: "):
        Headgate(ADDRESS, "edge", tls=Tls(ca=str(tmp_path / "key.pem")))
    for base, cap in ((0, 1), (1, -1), (1, math.inf)):
        with pytest.raises(ValueError, match=r"backoff\.(base|cap): "):
            Backoff(base, cap)


def test_what_is_sent_is_what_was_given(make_fake: Make, headgate_server: FakeServer) -> None:
    """Keywords in their order, lists as they are, costs where they belong."""
    client = make_fake()
    client.check(user="alice", path="/search")
    client.check([{"b": "1", "a": "2"}, [("x", ""), ("x", "y")], Descriptor({"c": "d"}, hits=7)], cost=3)
    client.check(user="alice", cost=0)
    sent = [
        (
            request.domain,
            request.hits_addend,
            [
                ([(e.key, e.value) for e in d.entries], d.hits_addend.value if d.HasField("hits_addend") else None)
                for d in request.descriptors
            ],
        )
        for request in headgate_server.requests
    ]
    assert sent == [
        ("edge", 1, [([("user", "alice"), ("path", "/search")], None)]),
        ("edge", 3, [([("b", "1"), ("a", "2")], None), ([("x", ""), ("x", "y")], None), ([("c", "d")], 7)]),
        ("edge", 0, [([("user", "alice")], 0)]),
    ]
