"""Origin URLs: what they mean, and what is said of those that mean nothing."""

import pytest
from headgate.errors import ConfigError
from headgate.origin.redis_origin.url import (
    Credentials,
    RedisAddress,
    RedisTls,
    RedisUrl,
    Topology,
    Verify,
    is_redis_url,
    parse_redis_url,
)
from headgate.origin.select import open_origin

from tests.support.clock import ManualClock

ACCEPTED = [
    ("redis://h", RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),))),
    (
        "redis://H1,h2:7000,[::1]:7001/3",
        RedisUrl(Topology.SHARDS, (RedisAddress("h1", 6379), RedisAddress("h2", 7000), RedisAddress("::1", 7001)), 3),
    ),
    ("redis://h/", RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),))),
    ("redis://[::1]", RedisUrl(Topology.SHARDS, (RedisAddress("::1", 6379),))),
    ("redis://:pass@h", RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),), credentials=Credentials(None, "pass"))),
    (
        "redis://me:p%40ss%2Fword@h",
        RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),), credentials=Credentials("me", "p@ss/word")),
    ),
    (
        "redis://me:a@b:c@h",
        RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),), credentials=Credentials("me", "a@b:c")),
    ),
    ("rediss://h", RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),), tls=RedisTls())),
    (
        "rediss://h?ca=/a.pem&cert=/c.pem&key=/k.pem&verify=chain",
        RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),), tls=RedisTls("/a.pem", "/c.pem", "/k.pem", Verify.CHAIN)),
    ),
    ("redis+cluster://a,b:1", RedisUrl(Topology.CLUSTER, (RedisAddress("a", 6379), RedisAddress("b", 1)))),
    ("rediss+cluster://a", RedisUrl(Topology.CLUSTER, (RedisAddress("a", 6379),), tls=RedisTls())),
    (
        "redis+sentinel://s1,s2:7/limits/2?sentinel_user=u&sentinel_password=p",
        RedisUrl(
            Topology.SENTINEL,
            (RedisAddress("s1", 26379), RedisAddress("s2", 7)),
            2,
            "limits",
            sentinel_credentials=Credentials("u", "p"),
        ),
    ),
    (
        "rediss+sentinel://s/limits",
        RedisUrl(Topology.SENTINEL, (RedisAddress("s", 26379),), 0, "limits", tls=RedisTls()),
    ),
]

REFUSED = [
    ("redis+shard://h", "scheme 'redis+shard'"),
    ("redis+://h", "scheme 'redis+'"),
    ("redis://", "no host"),
    ("redis:///0", "no host"),
    ("redis://a,,b", "'' is not host"),
    ("redis://a b", "'a b' is not host"),
    ("redis://h:", "no port after the colon"),
    ("redis://h:0", "'0' is not a port"),
    ("redis://h:70000", "'70000' is not a port"),
    ("redis://h:six", "'six' is not a port"),
    ("redis://::1", "brackets"),
    ("redis://[::1]7", "is not [address]:port"),
    ("redis://h,H:6379", "h:6379 is there twice"),
    ("redis://" + ",".join(f"h{n}" for n in range(257)), "257 hosts"),
    ("redis://h/zero", "database 'zero'"),
    ("redis://h/-1", "database '-1'"),
    ("redis://h/0/1", "one part too many"),
    ("redis+cluster://h/1", "no databases but 0"),
    ("redis+sentinel://h", "service name is missing"),
    ("redis+sentinel://h/", "service name is missing"),
    ("redis+sentinel://h/limits/0/1", "one part too many"),
    ("redis://h?ca=/x", "'ca' needs rediss"),
    ("redis://h?timeout=1", "'timeout' is not known"),
    ("rediss://h?sentinel_user=a", "'sentinel_user' is not known"),
    ("rediss://h?ca=", "'ca' is empty"),
    ("rediss://h?ca=/a&ca=/b", "'ca' is there twice"),
    ("rediss://h?verify=maybe", "verify='maybe'"),
    ("rediss://h?key=/k", "a key and no cert"),
    ("redis://user@h", "no password"),
]


@pytest.mark.parametrize(("url", "meaning"), ACCEPTED, ids=[url for url, _ in ACCEPTED])
def test_accepted(url: str, meaning: RedisUrl) -> None:
    assert is_redis_url(url)
    assert parse_redis_url(url) == meaning


@pytest.mark.parametrize(("url", "reason"), REFUSED, ids=[url[:40] for url, _ in REFUSED])
def test_refused_with_the_reason_and_what_is_accepted(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_redis_url(url)
    assert reason in str(refused.value)
    assert "redis+cluster://[user:password@]host" in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis://u:secret@h:0", "redis+x://u:secret@h", "http://u:secret@h", "redis://u:secret@"]
)
def test_a_password_is_never_shown(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_origin(url, clock=ManualClock())
    assert "secret" not in str(refused.value)


def test_a_password_is_not_in_a_repr() -> None:
    url = "redis+sentinel://u:secret@h/service?sentinel_password=secret"
    assert "secret" not in repr(parse_redis_url(url))


def test_addresses_read_as_they_are_written() -> None:
    assert [str(RedisAddress("h", 1)), str(RedisAddress("::1", 2))] == ["h:1", "[::1]:2"]


@pytest.mark.parametrize("url", ["http://h", "", "redi://h", "memory", "memory://x"])
def test_what_names_no_origin_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"memory://, redis://"):
        open_origin(url, clock=ManualClock())
