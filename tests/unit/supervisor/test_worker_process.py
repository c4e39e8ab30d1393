"""A real worker that says nothing while it starts: it is ended, but not before it had time."""

import os
import signal
from pathlib import Path

from headgate.clock import SystemClock
from headgate.config import Settings
from headgate.supervisor.process import WorkerProcess, WorkerSpec
from headgate.supervisor.pulse import MOST_MISSED_STARTING


async def test_one_that_hangs_while_it_starts_is_ended(tmp_path: Path) -> None:
    lock_fd = os.open(tmp_path, os.O_RDONLY)
    try:
        spec = WorkerSpec(0, False, tmp_path / "0", Settings(rules=tmp_path))
        process = await WorkerProcess.spawn(spec, SystemClock(), lock_fd)
        os.kill(process.pid, signal.SIGSTOP)
        assert not any(process.check_pulse() for _ in range(10 * MOST_MISSED_STARTING)), "it was not told to begin"
        await process.begin()
        assert not any(process.check_pulse() for _ in range(MOST_MISSED_STARTING))
        assert process.check_pulse()
        assert await process.ended() == -signal.SIGKILL
        assert not await process.settled()
        assert process.failure == "it hung: no sign of life for 120.5 s"
    finally:
        os.close(lock_fd)
