"""Sockets that listen for TCP or on a path. An address that can't be had raises ConfigError and says why."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc

from headgate.address import ALL_ADDRESSES, Address, TcpAddress, UnixAddress
from headgate.errors import ConfigError

BACKLOG = 4096
"""Callers in line; the system may allow fewer. Whoever finds the line full tries again after a second, on any of our
listeners: a probe has failed by then."""
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""A name may stand for an address of a family that this machine does not have: the others count."""

Target = tuple[Any, ...]
"""A socket address: host, port, and for IPv6 two more."""


def listen(address: Address, *, reuse_port: bool) -> tuple[list[socket.socket], Address]:
    """One socket for each address that the name stands for, all with one port; and the address with that port."""
    with ExitStack() as undo:
        try:
            if isinstance(address, UnixAddress):
                sockets = [_listen(undo, socket.AF_UNIX, address.path)]
            else:
                sockets = _listen_all(undo, address, reuse_port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConfigError(f"can't listen on {address}: {reason.lower()}") from error
        undo.pop_all()
    if isinstance(address, TcpAddress):
        address = TcpAddress(address.host, sockets[0].getsockname()[1])
    return sockets, address


def _listen_all(undo: ExitStack, address: TcpAddress, reuse_port: bool) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    port, failure = address.port, OSError(errno.EADDRNOTAVAIL, "")
    for family, target in resolve(address):
        try:
            sockets.append(_listen(undo, family, (target[0], port, *target[2:]), reuse_port))
        except OSError as error:
            if error.errno not in NOT_HERE:
                raise
            failure = error
            continue
        port = sockets[-1].getsockname()[1]
    if not sockets and address.host == ALL_ADDRESSES:
        # A machine without IPv6 has those of IPv4.
        return _listen_all(undo, TcpAddress("0.0.0.0", port), reuse_port)
    if not sockets:
        raise failure
    return sockets


def resolve(address: TcpAddress) -> Iterator[tuple[socket.AddressFamily, Target]]:
    """Yield the socket addresses that a server may bind for an address."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, target in found:
        yield family, target


def _listen(undo: ExitStack, family: socket.AddressFamily, target: Any, reuse_port: bool = False) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    undo.callback(listener.close)
    listener.setblocking(False)
    if family != socket.AF_UNIX:
        # Connections of a former run that linger in TIME_WAIT must not keep the next from starting.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        # The wildcard takes IPv4 too.
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(target)
    listener.listen(BACKLOG)
    return listener


def listen_by_grpcio(
    server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None, *, what: str = ""
) -> Address:
    """Have a server of grpcio's listen; return the address with the real port. An error says `what` can't listen."""
    target = str(address)
    try:
        port = server.add_secure_port(target, credentials) if credentials else server.add_insecure_port(target)
    except RuntimeError as error:
        raise ConfigError(f"{what}can't listen on {target}: {_why_not(address)}") from error
    return TcpAddress(address.host, port) if isinstance(address, TcpAddress) else address


def _why_not(address: Address) -> str:
    """grpcio doesn't say why it can't bind: the operating system does."""
    try:
        family, target = (socket.AF_UNIX, address.path) if isinstance(address, UnixAddress) else next(resolve(address))
        with socket.socket(family) as probe:
            probe.bind(target)
    except OSError as error:
        return error.strerror or str(error)
    return "grpcio can't bind"
