"""Everything that is made to fail, each as what breaks it and what heals it.

Each fault comes refused (an error at once) and stalled (no answer in time), where the
two are different things.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.fault.region import SHARDS, Region
from tests.support import redis_servers
from tests.support.fault_proxy import Fault
from tests.support.resolver_hosts import GONE, STALLED

SICK: Final = 1
ALL: Final = tuple(range(SHARDS))

ERRORS: Final = {
    "ERR": "ERR something is wrong",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY": "READONLY You can't write against a read only replica.",
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "NOAUTH": "NOAUTH Authentication required.",
}
NONSENSE: Final = "$5\r\nhello"
"""Well-formed, and not what was asked for: another version's reply, or somebody else's server."""
BEFORE_ALL_COMMANDS: Final = ("LOADING", "NOAUTH")
"""A server in these states refuses whatever is said to it, not only writes."""

Act = Callable[[Region], None]


@dataclass(frozen=True, slots=True)
class Outage:
    name: str
    begin: Act
    heal: Act
    sick: tuple[int, ...] = (SICK,)
    steady: bool = True
    """Fails all the time until it is healed, so that breakers open and stay open."""
    silent: bool = True
    """Nothing of it is ever heard until then: no answer teaches a node anything."""
    felt: bool = True
    """Policies decide because of it."""
    restarts: int | None = None
    """A node that starts only when the fault is there already."""

    def __str__(self) -> str:
        return self.name.replace(", ", "-").replace(" ", "_")


def network(
    name: str, fault: Fault, sick: tuple[int, ...] = (SICK,), *, steady: bool = True, silent: bool = True
) -> Outage:
    def begin(region: Region) -> None:
        for shard in sick:
            region.proxies.set(shard, fault)

    return Outage(name, begin, _heal_network(sick), sick, steady, silent)


def _heal_network(sick: tuple[int, ...]) -> Act:
    def heal(region: Region) -> None:
        for shard in sick:
            region.proxies.heal(shard)

    return heal


def killed(name: str, sick: tuple[int, ...] = (SICK,)) -> Outage:
    """The memory is gone with the process."""

    def begin(region: Region) -> None:
        for shard in sick:
            region.servers[shard].stop()
            region.proxies.set(shard, Fault("refuse"))

    def heal(region: Region) -> None:
        for shard in sick:
            assert region.servers[shard].start()
            region.proxies.heal(shard)

    return Outage(name, begin, heal, sick)


def stopped(name: str, sick: tuple[int, ...] = (SICK,)) -> Outage:
    """SIGSTOP: the kernel still takes connections and data."""

    def begin(region: Region) -> None:
        for shard in sick:
            region.servers[shard].pause()

    def heal(region: Region) -> None:
        for shard in sick:
            region.servers[shard].resume()

    return Outage(name, begin, heal, sick)


def at_startup(name: str, fault: Fault, sick: tuple[int, ...] = (SICK,)) -> Outage:
    """One node starts while the shard is already away."""
    outage = network(name, fault, sick)

    def begin(region: Region) -> None:
        region.stop_node(0)
        outage.begin(region)
        region.restart_node(0)

    return Outage(name, begin, outage.heal, sick, restarts=0)


def answers(error: str, *, after_s: float = 0.0) -> Outage:
    """The server says nothing but this."""
    fault = Fault("answer", delay_s=after_s, text=f"-{ERRORS[error]}", everything=error in BEFORE_ALL_COMMANDS)
    return network(f"answers {error}{', late' if after_s else ''}", fault)


# Brought about in a real server


def _out_of_memory(region: Region) -> None:
    region.servers[SICK].command("CONFIG SET", "maxmemory", "1")


def _in_memory(region: Region) -> None:
    region.servers[SICK].command("CONFIG SET", "maxmemory", "0")


def _disk_gone(region: Region) -> None:
    """It is told to save, and can't."""
    server = region.servers[SICK]
    directory = tempfile.mkdtemp(prefix="headgate-redis-")
    server.command("CONFIG SET", "dir", directory)
    shutil.rmtree(directory)
    server.command("CONFIG SET", "save", "3600 1")
    server.command("BGSAVE")
    redis_servers.wait_until(
        lambda: server.client.info("persistence")["rdb_last_bgsave_status"] == "err", "a save that failed"
    )


def _disk_back(region: Region) -> None:
    server = region.servers[SICK]
    server.command("CONFIG SET", "dir", str(server.directory))
    server.command("CONFIG SET", "save", "")


def _password_set(region: Region) -> None:
    """Those who are in stay in, so they are thrown out."""
    server = region.servers[SICK]
    server.command("CONFIG SET", "requirepass", "unknown")
    server.command("CLIENT KILL", "TYPE", "normal")


def _password_gone(region: Region) -> None:
    region.servers[SICK].command("CONFIG SET", "requirepass", "")


def _demoted(region: Region) -> None:
    """Another server, which is empty, is its primary now: it forgets all it knew."""
    server, primary = region.servers[SICK], region.primary
    server.command("REPLICAOF", "127.0.0.1", primary.port)
    redis_servers.wait_until(
        lambda: server.client.info("replication")["master_link_status"] == "up", "the replica to be in step"
    )


def _promoted(region: Region) -> None:
    region.servers[SICK].command("REPLICAOF", "NO", "ONE")


def name_lost(name: str, answer: str) -> Outage:
    """Its connections break, and its name is not to be had for new ones."""

    def begin(region: Region) -> None:
        region.hosts.set(region.names[SICK], answer)
        region.proxies.set(SICK, Fault("reset"))
        region.proxies.heal(SICK)

    def heal(region: Region) -> None:
        region.hosts.set(region.names[SICK], "127.0.0.1")

    return Outage(name, begin, heal)


def outages(*, late_s: float, slow_s: float, flap_s: float) -> list[Outage]:
    """One of each. What is late comes after `late_s`, what is slow takes `slow_s` each way: both beyond the deadline.

    What flaps is well and not in turns of `flap_s`, which must be longer than the deadline too.
    """
    return [
        killed("killed"),
        stopped("stopped (SIGSTOP)"),
        network("blackholed", Fault("blackhole")),
        network("network stalled", Fault("stall")),
        network("connections reset", Fault("reset")),
        network("replies truncated", Fault("truncate")),
        network("slow", Fault("slow", delay_s=slow_s), silent=False),
        killed("all killed", ALL),
        stopped("all stopped", ALL),
        at_startup("down at startup", Fault("refuse")),
        at_startup("stalled at startup", Fault("stall")),
        network("flapping, refused", Fault("flap", other="refuse", every_s=flap_s), steady=False, silent=False),
        network("flapping, stalled", Fault("flap", other="stall", every_s=flap_s), steady=False, silent=False),
        Outage("out of memory (OOM)", _out_of_memory, _in_memory),
        Outage("disk gone (MISCONF)", _disk_gone, _disk_back),
        Outage("password set (NOAUTH)", _password_set, _password_gone),
        Outage("demoted (READONLY)", _demoted, _promoted),
        answers("ERR"),
        network("answers nonsense", Fault("answer", text=NONSENSE)),
        answers("LOADING"),
        answers("ERR", after_s=late_s),
        name_lost("name gone", GONE),
        name_lost("name stalled", STALLED),
    ]


def more_outages(*, late_s: float) -> list[Outage]:
    """The same in other combinations: everything at once, and every error late."""
    return [
        network("all blackholed", Fault("blackhole"), ALL),
        at_startup("all down at startup", Fault("refuse"), ALL),
        at_startup("all stalled at startup", Fault("stall"), ALL),
        *(answers(error, after_s=late_s) for error in ERRORS if error != "ERR"),
    ]
