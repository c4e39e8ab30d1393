"""A real Envoy for tests: started, awaited, stopped, and nothing left behind.

```python
with run_envoy(http_config(routes=[route("/a", limits=[header_limit("user")])], headgate=[headgate.grpc])) as envoy:
    envoy.get("/a", {"x-user": "alice"}).status
```

Envoy's own sockets are in a directory of its own, but for the listener under test,
which takes a free port; nothing is shared with another Envoy on the same host.
"""

import contextlib
import copy
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.headgate import Answer, http_request
from tests.support.waiting import PATIENCE_S, wait_until

BINARY = Path(sys.executable).with_name("envoy")

ADMIN_SOCKET = "admin.sock"
BACKEND_SOCKET = "backend.sock"
DIRECTORY = "@directory@"
"""Stands for Envoy's own directory in a configuration, until there is one."""


class Envoy:
    """A process that answers."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self.process = process
        self.directory = directory
        self.address = ""

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def admin(self, path: str, method: str = "GET") -> Answer:
        return http_request(f"unix:{self.directory / ADMIN_SOCKET}", method, path)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return http_request(self.address, "GET", path, headers=headers)

    def statuses(self, path: str, headers: Mapping[str, str], count: int) -> list[int]:
        return [self.get(path, headers).status for _ in range(count)]

    def counters(self, pattern: str) -> dict[str, int]:
        """Counters and gauges whose name matches."""
        found = self.admin(f"/stats?format=json&filter={pattern}").json()["stats"]
        return {stat["name"]: stat["value"] for stat in found if "name" in stat}

    def rate_limit_errors(self) -> int:
        return self.counters("ratelimit.error$").get("cluster.backend.ratelimit.error", 0)

    def healthy_hosts(self, cluster: str = "headgate") -> int:
        return self.counters(f"cluster.{cluster}.membership_healthy$").get(f"cluster.{cluster}.membership_healthy", 0)

    def is_running(self) -> bool:
        return self.process.poll() is None

    def _wait_ready(self) -> None:
        def ready() -> bool:
            assert self.is_running(), f"Envoy ended with status {self.process.returncode}:\n{self.log}"
            with contextlib.suppress(OSError):
                return self.admin("/ready").status == 200
            return False

        wait_until(ready, "Envoy to be ready")
        listeners = self.admin("/listeners?format=json").json()["listener_statuses"]
        (front,) = [item["local_address"] for item in listeners if item["name"] == "front"]
        socket_address = front["socket_address"]
        self.address = f"{socket_address['address']}:{socket_address['port_value']}"

    def _stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@contextlib.contextmanager
def run_envoy(config: Mapping[str, Any]) -> Iterator[Envoy]:
    """An Envoy that is ready; fails at its end if it did not last."""
    # Not pytest's directory: the path of a Unix socket has at most 107 characters.
    directory = Path(tempfile.mkdtemp(prefix="envoy-"))
    try:
        process = _start(config, directory)
        envoy = Envoy(process, directory)
        try:
            envoy._wait_ready()
            yield envoy
            assert envoy.is_running(), f"Envoy ended with status {process.returncode}:\n{envoy.log}"
        finally:
            envoy._stop()
    finally:
        shutil.rmtree(directory)


def _start(config: Mapping[str, Any], directory: Path) -> "subprocess.Popen[bytes]":
    path = directory / "envoy.json"
    path.write_text(json.dumps(_with_admin(config)).replace(DIRECTORY, str(directory)))
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [BINARY, "--config-path", path, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _with_admin(config: Mapping[str, Any]) -> dict[str, Any]:
    complete = copy.deepcopy(dict(config))
    complete["admin"] = {"address": {"pipe": {"path": f"{DIRECTORY}/{ADMIN_SOCKET}"}}}
    return complete


def validate(path: Path, directory: Path) -> "subprocess.CompletedProcess[str]":
    """`envoy --mode validate`, in the directory that relative paths in the file start from."""
    return subprocess.run(
        [BINARY, "--config-path", path, "--mode", "validate", "--log-level", "warning"],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=PATIENCE_S,
        check=False,
    )
