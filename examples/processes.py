"""What the examples start on this machine: children of this process that end when it ends, short of SIGKILL."""

# ruff: noqa: S603, T201 - it starts the programs that the examples are about, and they print

import contextlib
import http.client
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
LOOK_EVERY_S = 0.5
"""Between two looks at whether the children still run."""


class DemoFailed(Exception):
    """Something did not start, or ended; the message says what, and what it said."""


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


def these_or_free_ports(wanted: Sequence[int]) -> list[int]:
    """These ports of loopback, and a free one for each that another program has, which is said."""
    taken = [port for port in wanted if not _is_free(port)]
    instead = dict(zip(taken, free_ports(len(taken)), strict=True))
    for port, other in instead.items():
        print(f"Port {port} is taken by another program: it is {other} here.")
    return [instead.get(port, port) for port in wanted]


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


class Child:
    """A program that was started, with a log in its directory."""

    def __init__(self, directory: Path, name: str, process: "subprocess.Popen[bytes]") -> None:
        self.name = name
        self.process = process
        self._log = directory / f"{name}.log"

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Wait until it is. Raises DemoFailed."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise DemoFailed(f"{self.name} is not ready after {START_TIMEOUT_S:g} s{self._said()}")
            time.sleep(0.05)
        self.check()

    def check(self) -> None:
        """Raise DemoFailed if it has ended."""
        if (ended := self.process.poll()) is not None:
            raise DemoFailed(f"{self.name} has ended, with {ended}{self._said()}")

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def _said(self) -> str:
        return f". The end of its log:\n{self._log.read_text(errors='replace')[-4000:]}"


def stay(children: Sequence[Child]) -> None:
    """Stay until a signal comes, or one of them ends. Raises DemoFailed then."""
    while True:
        for one in children:
            one.check()
        time.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def child(directory: Path, name: str, command: list[str]) -> Iterator[Child]:
    """A program in the directory, which gets its log too."""
    with (directory / f"{name}.log").open("wb") as log:
        # A session of its own: Ctrl-C is for us, and we end our children in order.
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield Child(directory, name, process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
