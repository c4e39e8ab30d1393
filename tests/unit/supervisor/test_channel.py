"""Messages over a socket pair: whole, in order, and an end that is noticed."""

import socket
from collections.abc import Iterator

import pytest
from headgate.supervisor.channel import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def test_messages_come_whole_however_they_were_cut(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    other.sendall(b'{"a": 1}\n{"b')
    assert channel.receive() == [{"a": 1}]
    assert channel.receive() == []
    other.sendall(b'": "two\\n"}\n')
    assert channel.receive() == [{"b": "two\n"}]
    assert not channel.ended


def test_the_first_leaves_the_next_where_it_is(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    other.sendall(b'{"a": 1}\n{"a": 2}\n')
    assert channel.receive_first() == {"a": 1}
    assert channel.receive() == [{"a": 2}]


def test_last_words_are_heard_before_the_end(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    other.sendall(b'{"a": 1}\n')
    other.close()
    assert channel.receive() == [{"a": 1}]
    assert channel.ended
    assert channel.receive() == []


def test_an_end_instead_of_a_first_message(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    other.sendall(b'{"a":')
    other.close()
    assert channel.receive_first() is None


def test_speaking_to_nobody_is_no_error(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    other.close()
    channel.send({"a": 1})


async def test_a_long_message_passes_a_reader_who_comes_late(ends: tuple[Channel, socket.socket]) -> None:
    import asyncio

    channel, other = ends
    text = "x" * 3_000_000
    sending = asyncio.create_task(channel.send_long({"text": text}))
    reader = Channel(other)
    message = await asyncio.to_thread(reader.receive_first)
    await sending
    assert message == {"text": text}
