"""The file of peers: which lines it takes, what it refuses by file and line, and what a change does."""

import asyncio
import os
from pathlib import Path

import pytest
import structlog
from headgate.config.kinds import Peer
from headgate.endpoint import followed
from headgate.errors import ConfigError
from headgate.exchange.peer_list import MOST_PEERS, PeerFile, PeerList
from structlog.testing import capture_logs

from tests.support.waiting import until

LOG = structlog.get_logger()
EU, US, AP = Peer("eu", "10.0.0.1:8082"), Peer("us", "us.internal:8082"), Peer("ap", "10.0.0.3:8082")


def not_outside(peer: Peer) -> None:
    if peer.address.startswith("192."):
        raise ConfigError("exchange: anybody could speak for a region")


def file_of(path: Path, text: str) -> PeerFile:
    path.write_text(text)
    return PeerFile(str(path), "me", not_outside, LOG)


@pytest.mark.parametrize(
    ("text", "peers"),
    [
        ("", ()),
        ("# nobody yet\n\n", ()),
        ("eu=10.0.0.1:8082\n  us=us.internal:8082  \n# ap=10.0.0.3:8082\n", (EU, US)),
    ],
)
def test_a_line_is_a_peer(tmp_path: Path, text: str, peers: tuple[Peer, ...]) -> None:
    assert PeerList(file=file_of(tmp_path / "p", text)).now == peers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("eu=10.0.0.1:8082\nus\n", ":2: expected `REGION=ADDR`, got 'us'"),
        ("eu=here\n", ":1: address 'here': write host:port or unix:/path"),
        ("a b=10.0.0.1:8082\n", ":1: expected"),
        ("\nme=10.0.0.1:8082\n", ":2: 'me' is this region itself: name only the others"),
        ("eu=10.0.0.1:8082\neu=10.0.0.2:8082\n", ":2: 'eu' is given twice"),
        ("eu=192.0.2.1:8082\n", ":1: exchange: anybody could speak for a region"),
        ("".join(f"r{n}=10.0.0.1:1\n" for n in range(MOST_PEERS + 1)), ": 101 peers, at most 100 are accepted"),
    ],
)
def test_what_is_no_peer_is_refused_with_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        file_of(tmp_path / "p", text)
    assert str(caught.value).startswith(f"peer_file {tmp_path / 'p'}{said}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"peer_file {tmp_path}/none: No such file"):
        PeerFile(str(tmp_path / "none"), "me", not_outside, LOG)


async def test_a_change_is_told_once_and_a_bad_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "POLL_S", 0.001)
    file = file_of(tmp_path / "p", "eu=10.0.0.1:8082\n")
    peers = PeerList(file=file)
    told: asyncio.Queue[tuple[Peer, ...]] = asyncio.Queue()

    async def on_change() -> None:
        told.put_nowait(peers.now)

    peers.listen(on_change)

    def change(text: str) -> None:
        (tmp_path / "next").write_text(text)
        os.replace(tmp_path / "next", tmp_path / "p")

    async def until_failures(number: int) -> None:
        await until(lambda: file.failures >= number, "the file to be refused")

    with capture_logs() as logs:
        watching = asyncio.create_task(peers.watch())
        async with asyncio.timeout(30):
            change("eu=10.0.0.1:8082\nap=10.0.0.3:8082\n")
            assert await told.get() == (EU, AP)
            change("eu=10.0.0.1:8082\nap\n")
            await until_failures(1)
            assert (peers.now, sorted(peers.names)) == ((EU, AP), ["ap", "eu"])
            assert peers.error == f"peer_file {tmp_path / 'p'}:2: expected `REGION=ADDR`, got 'ap'"
            os.remove(tmp_path / "p")
            await until_failures(2)
            assert peers.now == (EU, AP)
            change("# none\n")
            assert await told.get() == ()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert told.empty()
    assert not peers.error
    events = [line["event"] for line in logs]
    assert events == ["peers_reloaded", "peers_reload_failed", "peers_reload_failed", "peers_reloaded"]


def test_peers_that_are_given_are_not_followed() -> None:
    peers = PeerList((EU,))
    assert (sorted(peers.names), peers.is_followed, peers.error) == (["eu"], False, "")
