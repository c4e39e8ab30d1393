"""Where workers listen: a port that is kept, or a socket each."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from headgate.endpoint.socketfile import SocketFile
from headgate.errors import ConfigError
from headgate.supervisor.addresses import GrpcAddresses

from tests.support.waiting import PATIENCE_S


@contextlib.contextmanager
def taken(address: str, workers: int = 2) -> Iterator[GrpcAddresses]:
    addresses = GrpcAddresses(address, workers)
    try:
        yield addresses
    finally:
        addresses.close()


def worker(address: str) -> socket.socket:
    """What a worker's transport does with the address."""
    host, _, port = address.rpartition(":")
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind((host, int(port)))
    listening.listen()
    listening.settimeout(PATIENCE_S)
    return listening


def test_one_real_port_for_all_and_no_connection_ends_at_the_one_who_keeps_it() -> None:
    with taken("127.0.0.1:0", 3) as addresses:
        (address,) = addresses.all
        assert addresses.reuse_port
        assert [addresses.of(index) for index in range(3)] == [address] * 3
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        with worker(address) as listening:
            for _ in range(100):
                with socket.create_connection((host, int(port)), timeout=PATIENCE_S), listening.accept()[0]:
                    pass


def test_the_port_is_kept_from_others_while_no_worker_is_there() -> None:
    with taken("127.0.0.1:0") as addresses:
        host, _, port = addresses.of(0).rpartition(":")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))


def test_a_port_is_free_again_for_the_next_run_while_old_connections_linger() -> None:
    with taken("127.0.0.1:0") as addresses:
        address = addresses.of(0)
        host, _, port = address.rpartition(":")
        with worker(address) as listening, socket.create_connection((host, int(port))) as client:
            served, _ = listening.accept()
            # The side that closes first is the one that lingers.
            served.close()
            assert client.recv(1) == b""
    with taken(address) as again:
        assert again.of(0) == address


@pytest.mark.parametrize("share", [False, True])
def test_a_port_in_use_is_refused_even_by_those_who_share(share: bool) -> None:
    with socket.socket() as busy:
        if share:
            busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"^can't listen on {address}: address already in use$"):
            GrpcAddresses(address, 2)


def test_names_and_hosts_that_are_not_ours() -> None:
    with taken("localhost:0") as addresses:
        assert addresses.of(0).startswith("localhost:")
        assert not addresses.of(0).endswith(":0")
    for host in ("nowhere.invalid:0", "192.0.2.1:0"):
        with pytest.raises(ConfigError, match=f"can't listen on {host}: "):
            GrpcAddresses(host, 2)


def test_a_system_without_shared_ports_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    with pytest.raises(ConfigError, match=r"SO_REUSEPORT.*--grpc unix:/path.*or --workers 1"):
        GrpcAddresses("127.0.0.1:0", 2)
    with taken(f"unix:{tmp_path}/g") as addresses:
        assert not addresses.reuse_port


def test_a_unix_socket_each() -> None:
    with taken("unix:/run/g", 3) as addresses:
        assert addresses.all == ["unix:/run/g.0", "unix:/run/g.1", "unix:/run/g.2"]
        assert addresses.of(2) == "unix:/run/g.2"
    path = "/" + "x" * 99
    with taken(f"unix:{path}", 10):
        pass
    with pytest.raises(ConfigError, match="at most 103 bytes"):
        GrpcAddresses(f"unix:{path}xxx", 11)


def test_what_a_former_run_left_is_cleared_and_what_is_not_ours_is_not(tmp_path: Path) -> None:
    for name in ("g", "g.0", "g.7", "gg.0", "g.x"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(f"{tmp_path}/{name}")
        (tmp_path / f"{name}.lock").touch()
    (tmp_path / "g.3.lock").touch()
    (tmp_path / "g.4").write_text("precious")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{tmp_path}/g.5")
        listening.listen()
        held = SocketFile(f"{tmp_path}/g.6")
        with taken(f"unix:{tmp_path}/g"):
            left = ["g.4", "g.5", "g.6.lock", "g.x", "g.x.lock", "gg.0", "gg.0.lock"]
            assert sorted(os.listdir(tmp_path)) == left
        held.release()


def test_what_a_killed_worker_left_is_cleared_and_what_others_have_is_not(tmp_path: Path) -> None:
    with taken(f"unix:{tmp_path}/g") as addresses:
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(f"{tmp_path}/g.0")
        stale.close()
        (tmp_path / "g.0.lock").touch()
        others = SocketFile(f"{tmp_path}/g.1")
        (tmp_path / "g.1").touch()
        addresses.clear(0)
        addresses.clear(1)
        assert sorted(os.listdir(tmp_path)) == ["g.1", "g.1.lock"]
        others.release()
        addresses.clear(0)
        assert os.listdir(tmp_path) == []
