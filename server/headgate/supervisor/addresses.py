"""Addresses on which the workers listen for gRPC: one port for all of them, or a Unix socket each.

The port is kept for the supervisor's lifetime by a socket that is bound and never listens: the kernel hands connections
to listening sockets only, and while all workers are down no other process can take the port.
"""

import contextlib
import errno
import os
import re
import socket

from headgate.address import TcpAddress, UnixAddress, parse_address
from headgate.endpoint.listening import NOT_HERE, Target, resolve
from headgate.endpoint.socketfile import LOCK_SUFFIX, SocketFile
from headgate.errors import ConfigError


class GrpcAddresses:
    """The workers' gRPC addresses, reserved from construction to `close`. Raises ConfigError when one can't be had."""

    def __init__(self, address: str, workers: int) -> None:
        self._held: list[socket.socket] = []
        parsed = parse_address(address)
        if isinstance(parsed, UnixAddress):
            self.reuse_port = False
            _clear_left(parsed.path)
            self._each = [str(parse_address(f"{parsed}.{index}")) for index in range(workers)]
        else:
            self.reuse_port = True
            self._each = [self._hold(parsed)] * workers

    def of(self, index: int) -> str:
        return self._each[index]

    @property
    def all(self) -> list[str]:
        """Every address once, as a client would dial it."""
        return list(dict.fromkeys(self._each))

    def clear(self, index: int) -> None:
        """Remove the socket file of a worker that ended without doing so."""
        address = parse_address(self._each[index])
        if isinstance(address, UnixAddress) and os.path.lexists(address.path):
            _clear(address.path)

    def remove(self, index: int) -> None:
        """Remove the socket file of a worker that may still run: unlike `clear`, without asking for its lock."""
        address = parse_address(self._each[index])
        if isinstance(address, UnixAddress):
            for path in (address.path, address.path + LOCK_SUFFIX):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def close(self) -> None:
        for held in self._held:
            held.close()

    def _hold(self, address: TcpAddress) -> str:
        if not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigError(
                f"workers: this system can't share {address} among processes (it has no SO_REUSEPORT): "
                "use --grpc unix:/path, a socket for each, or --workers 1"
            )
        try:
            return str(self._hold_all(address))
        except OSError as error:
            self.close()
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConfigError(f"can't listen on {address}: {reason.lower()}") from error

    def _hold_all(self, address: TcpAddress) -> TcpAddress:
        port, failure = address.port, OSError(errno.EADDRNOTAVAIL, "")
        for family, target in resolve(address):
            try:
                held = _bind(family, (target[0], port, *target[2:]))
            except OSError as error:
                if error.errno not in NOT_HERE:
                    raise
                failure = error
                continue
            self._held.append(held)
            port = held.getsockname()[1]
        if not self._held:
            raise failure
        return TcpAddress(address.host, port)


def _clear_left(path: str) -> None:
    """Remove sockets of a former run that was killed, with more workers perhaps; leave those that another process
    holds.
    """
    directory, name = os.path.split(path)
    ours = re.compile(re.escape(name) + r"(\.\d{1,4})?(" + re.escape(LOCK_SUFFIX) + r")?")
    with contextlib.suppress(OSError):
        for found in {entry.removesuffix(LOCK_SUFFIX) for entry in os.listdir(directory) if ours.fullmatch(entry)}:
            _clear(os.path.join(directory, found))


def _clear(path: str) -> None:
    # Only the holder of its lock may remove it, so another process's file stays.
    with contextlib.suppress(ConfigError):
        SocketFile(path).release()


def _bind(family: socket.AddressFamily, target: Target) -> socket.socket:
    if target[1] != 0:
        # Only our workers share the port: a process that listens there now, sharing or not, is a stranger.
        _bound(family, target).close()
    return _bound(family, target, share=True)


def _bound(family: socket.AddressFamily, target: Target, *, share: bool = False) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of a former run that linger in TIME_WAIT must not keep the next from starting.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(target)
    except BaseException:
        held.close()
        raise
    return held
