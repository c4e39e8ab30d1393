"""A name server on a loopback port whose one name has the addresses that a test says, from the next question on."""

import socket
import struct
import threading
from collections.abc import Sequence
from typing import Final

TYPE_A: Final = 1
NO_SUCH_NAME: Final = 3
TTL_S: Final = 0


class NameServer:
    """`dns://{server.address}/{name}:port` asks it. UDP, A records, nothing else."""

    def __init__(self, name: str, addresses: Sequence[str]) -> None:
        self.name = name
        self.addresses = list(addresses)
        self.questions = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> "NameServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A datagram of nothing ends it: closing a socket wakes nobody who reads from it.
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            question, caller = self._socket.recvfrom(4096)
            if not question:
                return
            self._socket.sendto(self._answer(question), caller)

    def _answer(self, question: bytes) -> bytes:
        end = question.index(b"\0", 12)
        name = _read_name(question[12 : end + 1])
        kind = struct.unpack(">H", question[end + 1 : end + 3])[0]
        known = name.rstrip(".").lower() == self.name
        found = self.addresses if known and kind == TYPE_A else []
        self.questions += bool(found)
        # A response, recursion available; then one question and the answers to it.
        head = question[:2] + struct.pack(">HHHHH", 0x8180 | (0 if known else NO_SUCH_NAME), 1, len(found), 0, 0)
        records = [struct.pack(">HHHIH", 0xC00C, TYPE_A, 1, TTL_S, 4) + socket.inet_aton(ip) for ip in found]
        return head + question[12 : end + 5] + b"".join(records)


def _read_name(data: bytes) -> str:
    labels, at = [], 0
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels)
