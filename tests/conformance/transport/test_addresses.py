"""TCP and Unix sockets; an address that can't be had is the operator's error and says why."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from headgate.errors import ConfigError

from tests.conformance.transport.harness import Kind, Server, call, dialled, make_transport, serving
from tests.conformance.transport.server_process import server_process


async def _answers(address: str) -> bool:
    async with dialled(address) as channel:
        return bool(await call(channel, b"x") == b"echo:x")


async def _refusal(kind: Kind, address: str) -> str:
    transport, _ = make_transport(kind, address)
    with pytest.raises(ConfigError) as caught:
        await transport.start()
    # Harmless, whatever the lifecycle does with a transport that never started.
    await transport.stop(0)
    return str(caught.value)


async def test_port_0_gives_a_real_port(server: Server) -> None:
    assert server.port > 0
    assert await _answers(server.address)


async def test_port_in_use_is_refused_by_name(kind: Kind, server: Server) -> None:
    message = await _refusal(kind, server.address)
    assert server.address in message
    assert "in use" in message


async def test_port_is_free_again_after_stop(kind: Kind) -> None:
    async with serving(kind) as server:
        address = server.address
    async with serving(kind, address):
        assert await _answers(address)


async def test_reuse_port_shares_one_port(kind: Kind) -> None:
    async with serving(kind, reuse_port=True) as first, serving(kind, first.address, reuse_port=True) as second:
        assert first.address == second.address
        assert await _answers(first.address)


async def test_ipv6_wildcard_serves_both_families(kind: Kind) -> None:
    async with serving(kind, "[::]:0") as server:
        assert server.address.startswith("[::]:")
        assert await _answers(f"[::1]:{server.port}")
        assert await _answers(f"127.0.0.1:{server.port}")


async def test_host_name(kind: Kind) -> None:
    async with serving(kind, "localhost:0") as server:
        assert await _answers(server.address)


@pytest.mark.parametrize("address", ["no-such-host.invalid:1", "192.0.2.1:1"])
async def test_hosts_that_are_not_ours_are_refused(kind: Kind, address: str) -> None:
    assert address in await _refusal(kind, address)


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}"])
async def test_unix_socket_is_served_and_removed(kind: Kind, tmp_path: Path, form: str) -> None:
    path = tmp_path / "s"
    async with serving(kind, form.format(path)) as server:
        assert server.address == f"unix:{path}"
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert await _answers(server.address)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
async def test_unix_socket_is_for_its_owner_unless_told_otherwise(kind: Kind, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        async with serving(kind, f"unix:{tmp_path}/s"), serving(kind, f"unix:{tmp_path}/t", socket_mode=0o660):
            modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("s", "t")}
            assert modes == {"s": 0o600, "t": 0o660}
            assert await _answers(f"unix:{tmp_path}/t")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


async def test_stale_socket_file_is_replaced(kind: Kind, tmp_path: Path) -> None:
    """As a crash leaves it: the file is there, nobody listens."""
    path = tmp_path / "s"
    with server_process(kind, f"unix:{path}") as crashed:
        assert await _answers(crashed.address)
        crashed.process.kill()
        crashed.process.wait()
    assert path.exists()
    async with serving(kind, f"unix:{path}") as server:
        assert await _answers(server.address)
    assert os.listdir(tmp_path) == []


async def test_live_socket_is_refused_and_keeps_serving(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(kind, f"unix:{path}") as server:
        message = await _refusal(kind, f"unix:{path}")
        assert str(path) in message
        assert "in use" in message
        assert await _answers(server.address)
    assert os.listdir(tmp_path) == []


async def test_live_socket_of_another_program_is_refused(kind: Kind, tmp_path: Path) -> None:
    """One that takes no lock: it answers, so it is alive."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert "in use" in await _refusal(kind, f"unix:{path}")
        assert path.exists()


async def test_a_file_that_is_no_socket_is_left_alone(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data", encoding="ascii")
    assert "not a socket" in await _refusal(kind, f"unix:{path}")
    assert path.read_text(encoding="ascii") == "data"
    assert os.listdir(tmp_path) == ["precious"]


async def test_directory_that_is_missing_is_refused(kind: Kind, tmp_path: Path) -> None:
    assert str(tmp_path) in await _refusal(kind, f"unix:{tmp_path}/missing/s")


async def test_nothing_is_left_behind_by_a_run(kind: Kind, tmp_path: Path) -> None:
    """No directory, socket or lock file of ours outlives a clean stop."""
    script = f"""
import asyncio
from headgate.transport.shared_loop import SharedLoop
from tests.conformance.transport.harness import serving
async def main():
    async with serving({kind!r}, "unix:{tmp_path}/s"):
        pass
with asyncio.Runner(loop_factory=SharedLoop) as runner:
    runner.run(main())
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", script]
    result = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert os.listdir(tmp_path) == []


async def test_without_a_directory_for_temporary_files_it_still_serves(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container with a read-only file system has none; reflection alone is lost, and the log says so.

    The guard then reaches its front over loopback instead of a path.
    """

    def fail(*_arguments: object, **_options: object) -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", fail)
    async with serving(kind) as server:
        assert await _answers(server.address)
        assert (
            server.events()
            == {
                "native": ["reflection_unavailable"],
                "guarded": ["front_on_loopback", "reflection_unavailable"],
                "grpcio": [],
            }[kind]
        )
