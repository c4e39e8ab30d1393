"""What the examples start on this machine: children of this process that end when it ends, short of SIGKILL."""

# ruff: noqa: S603 - it starts the programs that the examples are about

import contextlib
import http.client
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


class DemoFailed(Exception):
    """Something did not start; the message says what, and what it said."""


def leave_on_signals() -> None:
    """SIGTERM and SIGINT raise KeyboardInterrupt. Both of our own: a shell that starts us with `&` lets us inherit a
    SIGINT that is ignored.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [item.getsockname()[1] for item in sockets]


@contextlib.contextmanager
def child(directory: Path, name: str, command: list[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """A program in the directory, which gets its log too."""
    with (directory / f"{name}.log").open("wb") as log:
        # A session of its own: Ctrl-C is for us, and we end our children in order.
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_ready(process: "subprocess.Popen[bytes]", name: str, directory: Path, ready: Callable[[], bool]) -> None:
    """Until it is. Raises DemoFailed with the end of its log."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            log = (directory / f"{name}.log").read_text(errors="replace")
            raise DemoFailed(f"{name} did not start (ports taken? try --free-ports):\n{log[-4000:]}")
        time.sleep(0.05)
    if process.poll() is not None:
        raise DemoFailed(f"another program answers on the port of {name}: try --free-ports")


def status(port: int, path: str) -> int | None:
    """What GET is answered with on this machine; None for nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        return connection.getresponse().status
    return None


def shown(path: Path) -> str:
    """From where the caller is, if it is below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
