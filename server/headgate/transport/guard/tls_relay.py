"""A relay for a caller who speaks TLS.

Records are taken apart and made in memory: one system call per read or write, however
many records there are.
"""

import socket
import ssl
from collections.abc import Callable

from headgate.endpoint.tls import names_of_certificate
from headgate.transport.callers import SanList
from headgate.transport.guard.connection import Connection
from headgate.transport.guard.passing import Frames
from headgate.transport.guard.relay import Relay
from headgate.transport.guard.surroundings import READ_BYTES, Surroundings

RECORDS_AT_ONCE = 64
"""Records that are taken apart in one turn: a busy caller's calls, or as many bytes by themselves."""
RECORDS_PER_STEP = 8
HANDSHAKE_STEPS = 32
"""Cost of a handshake, of which there are so many fewer in one turn; not the caller's to pay, who has but one."""

_AGAIN = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsRelay(Relay):
    """A connection that is encrypted on the caller's side. Its certificate must have an allowed name, if any is set."""

    def __init__(
        self,
        caller: socket.socket,
        frames: Frames,
        around: Surroundings,
        on_end: Callable[[Connection, str], None],
        context: ssl.SSLContext,
        names: SanList | None = None,
    ) -> None:
        super().__init__(caller, frames, around, on_end)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._names = names
        self._more_records = False
        """Records were left for another turn."""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def open(self) -> None:
        self._loop.add_reader(self._caller, self._on_handshake)

    def _on_handshake(self) -> None:
        if self._turns.left > 0:
            return self._take_handshake()
        self._loop.remove_reader(self._caller)
        return self._turns.stand_in_line(self._wait_for_handshake)

    def _wait_for_handshake(self) -> None:
        if not self._ended:
            self._loop.add_reader(self._caller, self._on_handshake)
            self._take_handshake()

    def _take_handshake(self) -> None:
        scratch = self._scratch
        try:
            received = self._caller.recv_into(scratch.encrypted)
            if not received:
                return self.close("handshake")
            self._incoming.write(scratch.encrypted_view[:received])
            done = self._shake_hands()
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            # An alert may tell the caller what is wrong.
            self._write(b"")
            return self.close("handshake")
        self._write(b"")
        if done and not self._is_allowed():
            return self.close("forbidden")
        if done and not self._ended:
            self._loop.add_reader(self._caller, self._on_opening)
            if self._incoming.pending:
                self._on_opening()
        else:
            self._charge_opening()
        return None

    def _is_allowed(self) -> bool:
        return self._names is None or self._names.allows(names_of_certificate(self._tls.getpeercert()))

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            if self._outgoing.pending:
                # It was more than a part of a message.
                self._turns.take(HANDSHAKE_STEPS)
        return True

    def _look_again(self) -> None:
        if self._frames.has_more or not self._more_records:
            super()._look_again()
        else:
            self._on_caller()

    def _receive(self, offset: int) -> int:
        incoming, scratch = self._incoming, self._scratch
        if self._more_records:
            return self._decrypt(offset)
        try:
            received = self._caller.recv_into(scratch.encrypted)
            if not received:
                return 0
            incoming.write(scratch.encrypted_view[:received])
        except BlockingIOError:
            # Something may have come with the end of the handshake.
            if not incoming.pending:
                raise
        return self._decrypt(offset)

    def _decrypt(self, offset: int) -> int:
        tls, incoming, view = self._tls, self._incoming, self._scratch.view
        start, records = offset, 0
        self._more_records = False
        try:
            while True:
                offset += tls.read(READ_BYTES, view[offset:])  # type: ignore[operator]  # with a buffer, a number
                records += 1
                if not incoming.pending and not tls.pending():
                    break
                if records == RECORDS_AT_ONCE:
                    self._more_records = True
                    break
        except _AGAIN:
            pass
        except ssl.SSLZeroReturnError:
            return offset - start
        if records >= RECORDS_PER_STEP or offset == start:
            self._account.charge(records // RECORDS_PER_STEP or 1)
        if self._more_records or self._account.is_empty:
            self._hold()
        if self._outgoing.pending and not self._to_caller:
            self._write(b"")
        if offset == start:
            raise BlockingIOError
        return offset - start

    def _encode(self, data: "bytes | memoryview") -> "bytes | memoryview":
        tls = self._tls
        written = tls.write(data) if data else 0
        while written < len(data):
            written += tls.write(data[written:])
        return self._outgoing.read()

    def _farewell(self) -> bytes:
        try:
            self._tls.unwrap()
        except (*_AGAIN, ssl.SSLError):
            pass
        return self._outgoing.read()
