"""A worker's life: settings from the supervisor, then a service like any other.

It listens to its supervisor all along, and says twice a second that it lives. When the
supervisor is gone, however it went, the worker drains and ends by itself, and takes its
temporary directory with it.
Started as `python -m headgate.supervisor.worker FD`, by a supervisor only.
"""

import asyncio
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence

from headgate.clock import SystemClock
from headgate.errors import ConfigError
from headgate.origin.region_map import MapEntry
from headgate.region.region_map import entry_of, row_of
from headgate.runtime.context import ServiceState, WorkerRole
from headgate.runtime.rooms.region import RegionRoom
from headgate.runtime.service import Service
from headgate.runtime.stopping import STOP_SIGNALS
from headgate.supervisor.channel import KEPT, Channel, Order
from headgate.supervisor.orphan import end_with_supervisor
from headgate.supervisor.process import STOP_GRACE_S, WorkerSpec
from headgate.supervisor.pulse import BEAT_S
from headgate.telemetry.logs import Logs, open_logs
from headgate.transport.private_directory import remove_if_empty
from headgate.transport.shared_loop import SharedLoop

EXIT_FAILED = 1
SUPERVISOR_GONE = "the supervisor is gone"


def main(arguments: Sequence[str]) -> int:
    """Run one worker; the first argument is the descriptor of its end of the channel. Returns the exit status."""
    channel = Channel(socket.socket(fileno=int(arguments[0])))
    message = channel.receive_first()
    if message is None:
        return EXIT_FAILED
    try:
        return _run(WorkerSpec.from_message(message), channel)
    except ConfigError as error:
        channel.send({"failure": str(error)})
        return EXIT_FAILED


def _run(spec: WorkerSpec, channel: Channel) -> int:
    settings = spec.settings
    end_with_supervisor(channel.fileno(), settings.drain_s + STOP_GRACE_S)
    _make_directory(spec)
    logs = open_logs(settings.log_level, settings.log_format, worker=spec.index)
    try:
        with asyncio.Runner(loop_factory=SharedLoop) as runner:
            return runner.run(_serve(spec, channel, logs))
    finally:
        logs.close()
        channel.receive()
        if channel.ended:
            _remove_directory(spec)


def _make_directory(spec: WorkerSpec) -> None:
    try:
        spec.directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"workers: {spec.directory}: can't be created: {error.strerror}") from error
    # What libraries put into temporary files goes with it, even if we are killed.
    tempfile.tempdir = str(spec.directory)


async def _serve(spec: WorkerSpec, channel: Channel, logs: Logs) -> int:
    def tell(state: ServiceState) -> None:
        channel.send({"state": state})

    def listen() -> None:
        for message in channel.receive():
            if KEPT in message:
                service.rooms.get(RegionRoom).learn(entry_of(message[KEPT]))
            else:
                _obey(service, logs, Order(message["order"]))
        if channel.ended:
            loop.remove_reader(channel.fileno())
            service.stopping.stop(SUPERVISOR_GONE)

    def share(entry: MapEntry) -> None:
        channel.send({KEPT: row_of(entry)})

    role = WorkerRole(spec.reuse_port, on_state=tell, index=spec.index, workers=spec.workers, on_keep=share)
    service = Service(spec.settings, logs, SystemClock(), random.SystemRandom(), role)
    loop = asyncio.get_running_loop()
    loop.add_reader(channel.fileno(), listen)
    beats = loop.create_task(_beat(channel))
    # The supervisor started us with these held; when this is called, the service handles them.
    loop.call_soon(signal.pthread_sigmask, signal.SIG_UNBLOCK, STOP_SIGNALS)
    try:
        return await service.run()
    finally:
        beats.cancel()
        loop.remove_reader(channel.fileno())


async def _beat(channel: Channel) -> None:
    while True:
        channel.beat()
        await asyncio.sleep(BEAT_S)


def _obey(service: Service, logs: Logs, order: Order) -> None:
    match order:
        case Order.SWITCH_LOG_LEVEL:
            logs.switch_level()
        case Order.STOP:
            service.stopping.stop("the supervisor asks")
        case Order.HURRY:
            service.stopping.hurry()


def _remove_directory(spec: WorkerSpec) -> None:
    """Remove this worker's directory, as its supervisor can't; the last worker removes the directory of all."""
    shutil.rmtree(spec.directory, ignore_errors=True)
    remove_if_empty(spec.directory.parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
