"""The ground that all rooms of a process stand on: settings, identity, clock, randomness, logs, metrics."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.config import Settings
from headgate.origin.region_map import MapEntry
from headgate.runtime.garbage import MemoryKeeper
from headgate.runtime.identity import Identity
from headgate.runtime.stopping import Stopping
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.logs import Logs
from headgate.telemetry.metrics import Metrics


class ServiceState(StrEnum):
    """Stages of a process's life. It only moves down this list."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """One of several workers: given to `Service` by the worker's main program."""

    reuse_port: bool
    """True where all of them listen on the same port."""
    on_state: Callable[[ServiceState], None]
    """Called with every state that the worker enters."""
    index: int = 0
    """Number of the worker, from 0."""
    workers: int = 1
    """Number of all workers, this one included."""
    on_keep: Callable[[MapEntry], None] = lambda entry: None
    """Called with an entry of the region's map that this worker keeps while the origin is away: the others hear it."""


@dataclass(slots=True)
class ProcessContext:
    """Values that every room may read. Only the service changes `state`."""

    settings: Settings
    identity: Identity
    clock: Clock
    random: random.Random
    logs: Logs
    logger: FilteringBoundLogger
    bounded: BoundedLogger
    """Logger for what may happen thousands of times a second: it writes a bounded number of lines."""
    metrics: Metrics
    memory: MemoryKeeper
    stopping: Stopping
    worker: WorkerRole | None
    """None where the process is not one of several workers."""
    state: ServiceState = ServiceState.STARTING

    @property
    def run(self) -> bytes:
        """Name of this run of the node, as the origin knows it."""
        return f"{self.identity.node}/{self.identity.run}".encode()

    @property
    def first(self) -> bool:
        """True unless another worker of this machine comes first: one of them does what is enough once."""
        return self.worker is None or self.worker.index == 0

    @property
    def socket_mode(self) -> int:
        """Permissions of socket files."""
        return int(self.settings.socket_mode, 8)
