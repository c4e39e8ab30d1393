"""Callers from IPv6 addresses that this machine does not have, over real sockets."""

import socket
from typing import Self


class Ipv6Listener:
    """Accepts one caller from each of these addresses."""

    def __init__(self, *hosts: str) -> None:
        self._hosts = list(hosts)
        self.callers: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, tuple[str, int, int, int]]:
        """As a listening socket that does not block."""
        if not self._hosts:
            raise BlockingIOError
        ours, caller = socket.socketpair()
        for each in (ours, caller):
            each.setblocking(False)
        self.callers.append(caller)
        return ours, (self._hosts.pop(0), 4711, 0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.callers:
            each.close()
