"""Origin URLs: what they mean, and what is said of those that mean nothing."""

import os
import traceback
from pathlib import Path

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
    (
        "redis://me@h?password_file=/run/p",
        RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),), credentials=Credentials("me", None, "/run/p")),
    ),
    (
        "redis://h?password_file=/run/p",
        RedisUrl(Topology.SHARDS, (RedisAddress("h", 6379),), credentials=Credentials(None, None, "/run/p")),
    ),
    (
        "redis+sentinel://s/limits?sentinel_password_file=/run/s",
        RedisUrl(
            Topology.SENTINEL,
            (RedisAddress("s", 26379),),
            0,
            ("limits",),
            sentinel_credentials=Credentials(None, None, "/run/s"),
        ),
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
            ("limits",),
            sentinel_credentials=Credentials("u", "p"),
        ),
    ),
    (
        "redis+sentinel://s/one,two,th%2Cree/2",
        RedisUrl(Topology.SENTINEL, (RedisAddress("s", 26379),), 2, ("one", "two", "th,ree")),
    ),
    (
        "rediss+sentinel://s/limits",
        RedisUrl(Topology.SENTINEL, (RedisAddress("s", 26379),), 0, ("limits",), tls=RedisTls()),
    ),
]

REFUSED = [
    ("redis+shard://h", "scheme is not known"),
    ("redis+://h", "scheme is not known"),
    ("redis://", "no host"),
    ("redis:///0", "no host"),
    ("redis://a,,b", "host 2 is not host"),
    ("redis://a b", "host 1 is not host"),
    ("redis://h:", "no port after the colon"),
    ("redis://h:0", "host 1: its port is not a number from 1 to 65535"),
    ("redis://h:70000", "its port is not a number"),
    ("redis://h:six", "its port is not a number"),
    ("redis://::1", "brackets"),
    ("redis://[::1]7", "is not [address]:port"),
    ("redis://h,H:6379", "h:6379 is there twice"),
    ("redis://" + ",".join(f"h{n}" for n in range(257)), "257 hosts"),
    ("redis://h/zero", "the database is not a number"),
    ("redis://h/-1", "the database is not a number"),
    ("redis://h/0/1", "one part too many"),
    ("redis+cluster://h/1", "no databases but 0"),
    ("redis+sentinel://h", "service name is missing"),
    ("redis+sentinel://h/", "service name is missing"),
    ("redis+sentinel://h/one,,two", "service name is missing"),
    ("redis+sentinel://h/one,", "service name is missing"),
    ("redis+sentinel://h/one,two,one", "service 3 is there twice"),
    ("redis+sentinel://h/" + ",".join(f"s{n}" for n in range(257)), "257 services"),
    ("redis+sentinel://h/limits/0/1", "one part too many"),
    ("redis://h?ca=/x", "'ca' needs rediss"),
    ("redis://h?timeout=1", "parameter 1 is not known (password_file accepted here)"),
    ("rediss://h?sentinel_user=a", "parameter 1 is not known (password_file, ca,"),
    ("rediss://h?ca=", "'ca' is empty"),
    ("rediss://h?ca=/a&ca=/b", "'ca' is there twice"),
    ("rediss://h?verify=maybe", "verify is none of hostname, chain, none"),
    ("rediss://h?key=/k", "a key and no cert"),
    ("redis://user@h", "no password"),
    ("redis://user:@h", "no password"),
    ("redis://u:p@h?password_file=/f", "a password and a password_file"),
    ("redis+sentinel://h/s?sentinel_password=p&sentinel_password_file=/f", "a sentinel_password and a sentinel"),
    ("redis://h/99999999999999999999", "the database is not a number"),
    ("redis://h:" + "9" * 5000, "its port is not a number"),
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
    "url",
    [
        "redis://u:hunter2@h:0",
        "redis://u:hunter2\udcff@h",
        "redis+x://u:hunter2@h",
        "http://u:hunter2@h",
        "redis://u:hunter2@",
        # What was meant to be a password, in a URL with a slip.
        "hunter2",
        "hunter2@h",
        "hunter2://h",
        "redis+hunter2://h",
        "redis://u:hunter2",
        "redis://:hunter2",
        "redis://:hunter2?@h",
        "redis://:x?hunter2@h",
        "redis://:x?hunter2=1@h",
        "redis://:x/hunter2",
        "redis://h/0/hunter2",
        "redis://:x:hunter2",
        "redis://[x]hunter2",
        "redis://a hunter2",
        "redis://u:hunter2@h?verify=none",
        "rediss://h?verify=hunter2",
        "redis+sentinel://h/s?sentinel_pasword=hunter2",
    ],
)
@pytest.mark.parametrize("in_a_file", [False, True])
def test_a_password_is_never_shown(url: str, in_a_file: bool, tmp_path: Path) -> None:
    if in_a_file:
        (tmp_path / "origin").write_bytes(f"{url}\n".encode(errors="surrogateescape"))
        url = f"file:{tmp_path}/origin"
    with pytest.raises(ConfigError) as refused:
        open_origin(url, clock=ManualClock())
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    assert str(tmp_path) in str(refused.value) or not in_a_file


def test_a_password_is_not_in_a_repr() -> None:
    url = "redis+sentinel://u:secret@h/service?sentinel_password=secret"
    assert "secret" not in repr(parse_redis_url(url))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "expected one line"),
        (b"\n", "expected one line"),
        (b"redis://h\nredis://i\n", "expected one line"),
        (b"x" * 70_000, "expected one line of at most 65536 bytes"),
        (b"\xff", "not text in UTF-8"),
        (b"memory://\n", "expected an origin URL: redis://"),
        (b"file:/etc/passwd\n", "expected an origin URL: redis://"),
        (None, "can't be read: No such file or directory"),
    ],
)
def test_a_file_that_holds_no_url_is_named_with_the_reason(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "origin"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        open_origin(f"file:{path}", clock=ManualClock())
    assert str(refused.value).startswith(f"{path}: {reason}" if content is None else f"{path}: ")
    assert reason in str(refused.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "origin")
    with pytest.raises(ConfigError, match="not a file that can be read again"):
        open_origin(f"file:{tmp_path}/origin", clock=ManualClock())


def test_addresses_read_as_they_are_written() -> None:
    assert [str(RedisAddress("h", 1)), str(RedisAddress("::1", 2))] == ["h:1", "[::1]:2"]


@pytest.mark.parametrize("url", ["http://h", "", "redi://h", "memory", "memory://x"])
def test_what_names_no_origin_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"memory://, redis://"):
        open_origin(url, clock=ManualClock())
