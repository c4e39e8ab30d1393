"""The log of a plane from its settings: in the data directory alone, or in a store that several roots write."""

import random
from pathlib import Path

from headgate.clock import Clock
from headgate.config import Settings
from headgate.errors import ConfigError
from headgate.plane.database import Sqlite
from headgate.plane.mirrored import Mirrored, SharedDatabase
from headgate.plane.rule_log import RuleLog


def open_log(settings: Settings, clock: Clock, rng: random.Random) -> tuple[RuleLog, Mirrored | None]:
    """Open the log, and the store that it is written to where several roots do. Raises ConfigError."""

    def new_name() -> str:
        # By the time, so that the names of later logs sort behind those of earlier ones.
        return f"{clock.now_ms():013d}-{rng.getrandbits(32):08x}"

    directory, promote = settings.data_dir, settings.promote
    # A copy of what is in a database may be gone with the process: it is taken from there again.
    if settings.plane_store is not None:
        store = open_postgresql(settings.plane_store)
        mirrored = Mirrored(store, Sqlite(directory), clock, new_name, promote=promote)
        return RuleLog(mirrored), mirrored
    if directory is None:
        raise ConfigError("data_dir: `headgate plane` needs it (--store DIR): its log is there")
    log = RuleLog(Sqlite(directory))
    if settings.upstream is None and (log.is_copy or not log.position.plane):
        _refuse_copy(log, directory, promote=promote)
        log.name(new_name())
    return log, None


def _refuse_copy(log: RuleLog, directory: Path, *, promote: bool) -> None:
    if log.is_copy and not promote:
        log.close()
        raise ConfigError(
            f"data_dir {directory}: holds a copy: name the --upstream or the --plane-store that it is of, or say "
            "--promote to make it the root, once the former root is gone for good"
        )


def open_postgresql(url: str) -> SharedDatabase:
    """Name the database. Raises ConfigError where the driver is missing, which is no part of a plain installation."""
    try:
        from headgate.plane.postgresql import Postgresql  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"plane_store: the driver of PostgreSQL is missing ({error}): pip install 'headgate[postgresql]'"
        ) from error
    return Postgresql(url)
