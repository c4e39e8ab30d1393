"""TCP proxies in front of servers that can be made to fail in the ways that networks and servers do.

```python
with FaultProxies([server.port, …]) as proxies:
    proxies.set(0, Fault("blackhole"))
    proxies.heal(0)
```

A target is the port of a Redis server. Or it is a list of Unix sockets, as those of servers behind one
balancer: each new connection goes to the next one that accepts it, and bytes are carried as they come.

They live in a process of their own, so that a test that is busy does not make the network
slow, and end with it. `set` returns when the fault is in force. What each kind does:

- `pass`       carries everything
- `stall`      holds everything, and carries it when healed; new connections too
- `blackhole`  loses everything on every connection that it meets, for good: they never come back
- `reset`      resets what there is, and what comes
- `refuse`     resets what there is, and nothing listens: connection refused
- `truncate`   cuts every reply in the middle and resets the connection
- `slow`       holds each request and each reply for `delay_s`
- `answer`     answers scripts (with `everything`: every command) with `text`, after `delay_s`
- `flap`       `other` and `pass` in turns of `every_s`
"""

import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

HOST: Final = "127.0.0.1"
SCRIPTS: Final = (b"EVALSHA", b"SCRIPT")
STOP_TIMEOUT_S: Final = 60.0
CUTTING: Final = ("reset", "refuse")


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str = "pass"
    delay_s: float = 0.0
    text: str = ""
    everything: bool = False
    other: str = "refuse"
    every_s: float = 0.3


class FaultProxies:
    """The tests' side: starts the process and tells it what to do."""

    def __init__(self, targets: Sequence[int | Sequence[str]]) -> None:
        words = [str(target) if isinstance(target, int) else ",".join(target) for target in targets]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.ports: list[int] = json.loads(self._stdout.readline())

    def set(self, index: int, fault: Fault) -> None:
        self._stdin.write(json.dumps([index, asdict(fault)]).encode() + b"\n")
        self._stdin.flush()
        assert self._stdout.readline() == b"ok\n", f"the proxy could not {fault}"

    def heal(self, index: int) -> None:
        self.set(index, Fault())

    def close(self) -> None:
        self._stdin.close()
        self._process.wait(STOP_TIMEOUT_S)
        self._stdout.close()

    def __enter__(self) -> "FaultProxies":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Proxy:
    """The process's side: one listener, one target, one fault at a time."""

    def __init__(self, target: str) -> None:
        self.fault = Fault()
        self.read = read_command if target.isdigit() else read_some
        """What is lost or held as one piece of a request, and the command's name."""
        self._targets = deque(target.split(","))
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._carriers: set[Carrier] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flapping: asyncio.Task[None] | None = None
        self._listener: asyncio.Server | None = None
        # Bound and never listening: keeps the port ours while nothing listens, when it refuses.
        self._placeholder = _bound(0)
        self.port: int = self._placeholder.getsockname()[1]

    async def set(self, fault: Fault) -> None:
        if self._flapping is not None:
            self._flapping.cancel()
            await asyncio.wait([self._flapping])
            self._flapping = None
        if fault.kind == "flap":
            self._flapping = asyncio.create_task(self._flap(fault))
        else:
            await self._apply(fault)

    async def _flap(self, fault: Fault) -> None:
        while True:
            await self._apply(Fault(fault.other))
            await asyncio.sleep(fault.every_s)
            await self._apply(Fault())
            await asyncio.sleep(fault.every_s)

    async def _apply(self, fault: Fault) -> None:
        self.fault = fault
        if fault.kind == "stall":
            self._flowing.clear()
        else:
            self._flowing.set()
        for carrier in list(self._carriers):
            if fault.kind in CUTTING:
                carrier.cut()
            carrier.lost |= fault.kind == "blackhole"
        if fault.kind == "refuse":
            self._stop_listening()
        elif self._listener is None:
            self._listener = await asyncio.start_server(self._accept, sock=_bound(self.port))

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        carrier = Carrier(self, reader, writer)
        self._carriers.add(carrier)
        try:
            await carrier.run()
        except (OSError, EOFError, ValueError):
            carrier.cut()  # the target is not there, or somebody left in the middle of a command
        finally:
            self._carriers.discard(carrier)
            writer.close()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The next target that accepts. Raises OSError when none does."""
        for _ in range(len(self._targets)):
            target = self._targets[0]
            self._targets.rotate(-1)
            with contextlib.suppress(OSError):
                if target.isdigit():
                    return await asyncio.open_connection(HOST, int(target))
                return await asyncio.open_unix_connection(target)
        raise ConnectionRefusedError

    async def flow(self) -> None:
        await self._flowing.wait()


class Carrier:
    """One connection and its counterpart."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lost = proxy.fault.kind == "blackhole"
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._up: asyncio.StreamWriter | None = None

    def cut(self) -> None:
        """Both sides get a reset."""
        for writer in (self._writer, self._up):
            if writer is not None:
                _reset(writer)

    async def run(self) -> None:
        if self._proxy.fault.kind in CUTTING:
            self.cut()
            return
        await self._proxy.flow()
        up_reader, self._up = await self._proxy.dial()
        ways = [asyncio.create_task(self._requests(self._up)), asyncio.create_task(self._replies(up_reader))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._up.close()

    async def _requests(self, up: asyncio.StreamWriter) -> None:
        while True:
            raw, name = await self._proxy.read(self._reader)
            await self._proxy.flow()
            fault = self._proxy.fault
            if self.lost:
                continue
            if fault.kind == "answer" and (fault.everything or name in SCRIPTS):
                await asyncio.sleep(fault.delay_s)
                self._writer.write(fault.text.encode() + b"\r\n")
                continue
            if fault.kind == "slow":
                await asyncio.sleep(fault.delay_s)
            up.write(raw)

    async def _replies(self, up: asyncio.StreamReader) -> None:
        while data := await up.read(1 << 16):
            await self._proxy.flow()
            fault = self._proxy.fault
            if self.lost:
                continue
            if fault.kind == "truncate":
                self._writer.write(data[: len(data) // 2])
                await self._writer.drain()
                self.cut()
                return
            if fault.kind == "slow":
                await asyncio.sleep(fault.delay_s)
            self._writer.write(data)


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        # Closing without lingering is what makes it a reset.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read_command(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One command as it came, and its name. Raises EOFError at the end."""
    head = await reader.readline()
    if not head:
        raise EOFError
    parts, name = [head], b""
    for position in range(int(head[1:])):
        length = await reader.readline()
        word = await reader.readexactly(int(length[1:]) + 2)
        parts += (length, word)
        name = name if position else word[:-2].upper()
    return b"".join(parts), name


async def read_some(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """What there is, with no name. Raises EOFError at the end."""
    data = await reader.read(1 << 16)
    if not data:
        raise EOFError
    return data, b""


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((HOST, port))
    return bound


async def serve(targets: list[str]) -> None:
    """Obey the lines on stdin until it ends."""
    proxies = [Proxy(target) for target in targets]
    for proxy in proxies:
        await proxy.set(Fault())
    _say(json.dumps([proxy.port for proxy in proxies]))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        index, fields = _order(line)
        await proxies[index].set(Fault(**fields))
        _say("ok")


def _order(line: bytes) -> tuple[int, dict[str, Any]]:
    index, fields = json.loads(line)
    return index, fields


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(sys.argv[1:]))
