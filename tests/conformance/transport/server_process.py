"""A transport in a process of its own, for tests that measure it, signal it or try to kill it.

    python -m tests.conformance.transport.server_process KIND ADDRESS

Prints its address, echoes what it is sent, drains on SIGTERM.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from headgate.transport.interface import TransportLimits
from headgate.transport.select import TransportKind, choose_transport

from tests.conformance.transport.harness import TIMEOUT_S

ROOT = Path(__file__).parents[3]


class ServerProcess:
    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def rss_bytes(self) -> int:
        """Resident memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    async def terminate(self) -> int:
        """Its exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, TIMEOUT_S)


@contextmanager
def server_process(kind: TransportKind, address: str = "127.0.0.1:0") -> Iterator[ServerProcess]:
    command = [sys.executable, "-m", "tests.conformance.transport.server_process", kind, address]
    # What a killed process leaves behind goes with its directory for temporary files.
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": directory},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield ServerProcess(process, process.stdout.readline().strip())
        finally:
            process.kill()


async def main(kind: TransportKind, address: str) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    transport = choose_transport(kind)(
        address, lambda payload: b"echo:" + payload, limits=TransportLimits(), logger=structlog.get_logger()
    )
    await transport.start()
    transport.set_serving(True)
    sys.stdout.write(f"{transport.address}\n")
    sys.stdout.flush()
    await stopping.wait()
    await transport.stop(1.0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))  # type: ignore[arg-type]
