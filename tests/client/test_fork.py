"""A client that was used, and then the process forks: the child connects anew, and the parent goes on."""

import json
import subprocess
import sys

import pytest

from tests.support.headgate import Headgate, clean_environ
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


def run(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=clean_environ({}),
    )


SCRIPT = """
import asyncio, json, os, sys, threading
from headgate_client import AsyncHeadgate, Headgate

address, kind = sys.argv[1:]
options = dict(timeout=30, connect_timeout=30)
if kind == "threads":
    client = Headgate(address, "edge", **options)
    remaining = lambda: client.check(user="fork-" + kind).remaining
else:
    client = AsyncHeadgate(address, "edge", **options)
    async def ask():
        return (await client.check(user="fork-" + kind)).remaining
    remaining = lambda: asyncio.run(ask())

said = {"before": remaining()}
read, write = os.pipe()
child = os.fork()
if child == 0:
    try:
        os.write(write, json.dumps([remaining(), client.counters["allowed"]]).encode())
    finally:
        os._exit(0)
os.close(write)
said["child"] = json.loads(os.read(read, 100))
said["status"] = os.waitpid(child, 0)[1]
said["after"] = remaining()
said["counted"] = client.counters["allowed"]
print(json.dumps(said))
"""


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_fork_after_use(headgate: Headgate, kind: str) -> None:
    ran = run(SCRIPT, headgate.grpc, kind)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"before": 4, "child": [3, 1], "status": 0, "after": 2, "counted": 2}


LOCKED = """
import os, sys, threading
from headgate_client import Headgate
from headgate_client.testing import FakeServer

server = FakeServer()
server.limit("edge", "1/day", user="*")
client = server.client("edge")
client.check(user="a"), client.check(user="a")
core = client._core
held = [client._connecting, core.report._lock, core.denials._lock]
for lock in held:
    threading.Thread(target=lock.acquire).start()
child = os.fork()
if child == 0:
    client.check(user="a")
    os._exit(0 if client.counters["denied"] == 1 else 1)
print(os.waitpid(child, 0)[1])
os._exit(0)
"""


def test_locks_that_threads_held_at_the_fork_are_free_in_the_child() -> None:
    ran = run(LOCKED)
    assert (ran.stdout, ran.returncode) == ("0\n", 0), ran.stderr


UNDER_CALLS = """
import os, sys, threading
from headgate_client import Headgate
client = Headgate(sys.argv[1], "edge", timeout=30, connect_timeout=30)
stop = threading.Event()
failed = []
def work():
    while not stop.is_set():
        if client.check(bulk="x").degraded:
            failed.append(1)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
while client.counters["allowed"] < 20: pass
codes = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if all(not client.check(bulk="x").degraded for _ in range(10)) else 1)
    codes.append(os.waitpid(child, 0)[1])
stop.set()
for thread in threads: thread.join()
print(codes, len(failed))
"""


def test_a_fork_under_calls(headgate: Headgate) -> None:
    """Other threads of the parent are in the middle of calls, as in a server that starts workers late."""
    ran = run(UNDER_CALLS, headgate.grpc)
    assert ran.stdout == "[0, 0, 0] 0\n", ran.stderr


UNDER_WAY = """
import asyncio, os, signal, sys
from headgate_client import AsyncHeadgate
client = AsyncHeadgate(sys.argv[1], "edge", timeout=30, connect_timeout=30)

async def parent():
    await client.check(bulk="x")
    calls = [asyncio.create_task(client.check(bulk="x")) for _ in range(3)]
    await asyncio.sleep(0)
    child = os.fork()
    if child == 0:
        asyncio.events._set_running_loop(None)
        os._exit(0 if "FORKED" in str(asyncio.run(client.check(bulk="x")).error) else 1)
    print(os.waitpid(child, 0)[1], [(await call).degraded for call in calls], (await client.check(bulk="x")).degraded)

asyncio.run(parent())
"""


def test_a_fork_under_calls_of_asyncio_neither_hangs_nor_aborts(headgate: Headgate) -> None:
    """gRPC's asyncio does not survive that; the child says so, and the parent does not notice."""
    ran = run(UNDER_WAY, headgate.grpc)
    assert ran.stdout == "0 [False, False, False] False\n", ran.stderr
