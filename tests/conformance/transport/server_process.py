"""A transport in a process of its own, for tests that measure it, signal it or try to kill it.

    python -m tests.conformance.transport.server_process KIND ADDRESS LIMITS MEMORY_BYTES

LIMITS is JSON: those of the transport that are not the default, and those of the guard under "guard".

Prints its address, echoes what it is sent, drains on SIGTERM.
"""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import structlog
from headgate.transport.interface import GuardLimits, Serving, TransportLimits
from headgate.transport.shared_loop import SharedLoop

from tests.conformance.transport.harness import TIMEOUT_S, Kind, factory_of
from tests.support.handlers import FunctionHandler

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
        return self._status_bytes("VmRSS:")

    def peak_bytes(self) -> int:
        """The most that it ever was."""
        return self._status_bytes("VmHWM:")

    def _status_bytes(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024

    def descriptors(self) -> int:
        """Open files and sockets."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    async def terminate(self) -> int:
        """Its exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, TIMEOUT_S)


@contextmanager
def server_process(
    kind: Kind, address: str = "127.0.0.1:0", limits: TransportLimits | None = None, memory_bytes: int = 0
) -> Iterator[ServerProcess]:
    """With `memory_bytes`, that is all the address space that it may have."""
    described = json.dumps(asdict(limits or TransportLimits()))
    command = [sys.executable, "-m", "tests.conformance.transport.server_process", kind, address]
    command += [described, str(memory_bytes)]
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


async def main(kind: Kind, address: str, described: str, memory_bytes: str) -> None:
    if int(memory_bytes):
        resource.setrlimit(resource.RLIMIT_AS, (int(memory_bytes),) * 2)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    values = json.loads(described)
    limits = TransportLimits(**{**values, "guard": GuardLimits(**values["guard"])})
    endpoint = Serving(address, FunctionHandler(lambda payload: b"echo:" + payload), limits, structlog.get_logger())
    transport = factory_of(kind)(endpoint)
    await transport.start()
    transport.set_serving(True)
    sys.stdout.write(f"{transport.address}\n")
    sys.stdout.flush()
    await stopping.wait()
    await transport.stop(1.0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=SharedLoop) as runner:
        runner.run(main(*sys.argv[1:]))  # type: ignore[arg-type]
