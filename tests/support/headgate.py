"""A real `headgate serve` on free ports, for tests: started, awaited, stopped, and nothing left behind.

```python
with serve(rules) as headgate:
    headgate.get("/readyz")
    Client(headgate.grpc)
```

The process announces its addresses in its `serving` log line; tests wait for log
lines and conditions, never for time to pass.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.transport.http_listener import HttpLimits

from tests.support.waiting import PATIENCE_S, wait_until

SCRAPE_KEPT_S = HttpLimits().scrape_kept_s
HEADGATE = (sys.executable, "-m", "headgate")
RATELIMIT = (sys.executable, "-c", "import sys; from headgate.cli import ratelimit; sys.exit(ratelimit())")
"""The commands `headgate` and `headgate-ratelimit`, also where they are not installed."""
FREE_PORTS = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 5}
- key: bulk
  rate_limit: {unit: year, requests_per_unit: 1000000}
"""
"""Of a year, so that no window ends during a test."""


def write_rules(directory: Path, text: str = RULES, name: str = "edge.yaml") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)
    return directory


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self._path)


def http_request(
    address: str, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """One request on a connection of its own; `address` is `host:port` or `unix:/path`."""
    connection = (
        _UnixConnection(address.removeprefix("unix:"))
        if address.startswith("unix:")
        else http.client.HTTPConnection(address, timeout=PATIENCE_S)
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


class Headgate:
    """A process that was started; its log lines as they come."""

    def __init__(
        self,
        arguments: list[str],
        environ: Mapping[str, str],
        max_files: int | None = None,
        program: Sequence[str] = HEADGATE,
    ) -> None:
        command = [*program, *arguments]
        if max_files is not None:
            command = ["sh", "-c", f'ulimit -n {max_files} && exec "$@"', "sh", *command]
        # Whatever it leaves in its temporary directory, killed or not, goes with the test.
        self._scratch = tempfile.TemporaryDirectory(prefix="hg-")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environ({"TMPDIR": self._scratch.name, **environ}),
            start_new_session=True,
        )
        self._scraped_s = 0.0
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    grpc: str
    http: str

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                self.lines.append(line.decode().rstrip("\n"))
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def wait_for_event(self, name: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The first log line of that event; fails when the process ends without it."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [event for event in self.events if event["event"] == name]
            return bool(found) or self._ended

        with self._more:
            self._more.wait_for(there, timeout_s)
        assert found, f"no {name!r} in the log:\n" + "\n".join(self.lines)
        return found[0]

    def wait_ready(self) -> "Headgate":
        serving = self.wait_for_event("serving")
        self.grpc, self.http = serving["grpc"], serving["http"]
        return self

    def wait_exchanging(self) -> "Headgate":
        """The same for `headgate exchange`."""
        self.http = self.wait_for_event("exchanging")["http"]
        return self

    def get(self, path: str) -> Answer:
        """Ask; for metrics, when those of the last time are no longer kept."""
        if path == "/metrics":
            time.sleep(max(0.0, self._scraped_s + SCRAPE_KEPT_S - time.monotonic()))
            self._scraped_s = time.monotonic() + 0.05  # the server's second begins when they are written
        return http_request(self.http, "GET", path)

    def post_json(self, body: Any) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return http_request(self.http, "POST", "/json", data, {"Content-Type": "application/json"})

    def descriptors(self) -> int:
        """How many files and sockets the process has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def send(self, number: signal.Signals) -> None:
        """Where it is SIGSTOP, return when every thread has stopped: until then one may still answer."""
        self.process.send_signal(number)
        if number is signal.SIGSTOP:
            wait_until(self._is_stopped, "every thread to stop")

    def _is_stopped(self) -> bool:
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        with contextlib.suppress(OSError):  # one that has ended since
            return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)
        return False

    def wait_exit(self, timeout_s: float = PATIENCE_S) -> int:
        status = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return status

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.send(signal.SIGTERM)
        return self.wait_exit()

    def clean_up(self) -> None:
        """Whatever the test left running is killed; what the process itself left behind is a failure."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        left_behind = _kill_group(self.process.pid)
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()
        self._scratch.cleanup()
        assert not left_behind, "the process left children behind"


def _kill_group(group: int) -> bool:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def clean_environ(extra: Mapping[str, str]) -> dict[str, str]:
    """This environment without our settings, and `extra`. What the Python path is asked to hold comes before what it
    holds already: on the compiled build, where that build is (Makefile)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    paths = [path for path in (extra.get("PYTHONPATH"), kept.get("PYTHONPATH")) if path]
    return {**kept, **extra, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


@contextlib.contextmanager
def start(
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    max_files: int | None = None,
    program: Sequence[str] = HEADGATE,
) -> Iterator[Headgate]:
    """`headgate ARGUMENTS…`, not awaited. It may have `max_files` open and no more."""
    headgate = Headgate(list(arguments), environ or {}, max_files, program)
    try:
        yield headgate
    finally:
        headgate.clean_up()


@contextlib.contextmanager
def serve(
    rules: Path,
    *flags: str,
    grpc: str = "127.0.0.1:0",
    http: str = "127.0.0.1:0",
    drain_s: float = 0,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Headgate]:
    """A server that is ready."""
    addresses = ["--grpc", grpc, "--http", http, "--drain-s", str(drain_s)]
    with start("serve", "--rules", str(rules), *addresses, *flags, environ=environ) as headgate:
        yield headgate.wait_ready()


def run(*arguments: str, environ: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """A command that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "headgate", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=clean_environ(environ or {}),
    )
