"""Processes under measurement: the bare transport, Headgate and its Redis servers, and the CPU time that they take.

CPU time is what the kernel counted for all threads of all processes that belong together, in
nanoseconds (`/proc/PID/task/*/schedstat`). So whatever work a server hands to a child or to Redis is in it.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

ANSWER = (
    RateLimitResponse(
        overall_code=RateLimitResponse.OK,
        statuses=[
            RateLimitResponse.DescriptorStatus(
                code=RateLimitResponse.OK,
                current_limit=RateLimitResponse.RateLimit(requests_per_unit=100, unit="HOUR"),
                limit_remaining=99,
                duration_until_reset=Duration(seconds=10, nanos=2_000_000),
            )
        ],
    )
    .SerializeToString()
    .hex()
)

FLOOR = textwrap.dedent(f"""
    import sys
    from pygrpc_native._native import NativeGrpcFront
    front = NativeGrpcFront(sys.argv[1], [("{METHOD}", False)], 1, max_concurrent_streams=100)
    front.start()
    print(front.bound_port, flush=True)
    answer = bytes.fromhex("{ANSWER}")
    while (events := front.recv_batch(256, 50)) is not None:
        for _, call, _, _, _ in events:
            front.respond(call, answer)
""")


def cpu_ns(pid: int) -> int:
    """What a process and all that it started have taken of the CPU."""
    threads = Path(f"/proc/{pid}/task")
    children = [int(child) for thread in threads.iterdir() for child in (thread / "children").read_text().split()]
    own = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads.iterdir())
    return own + sum(map(cpu_ns, children))


@dataclass
class Server:
    """A process that answers rate-limit calls, and those that it leans on."""

    process: "subprocess.Popen[str]"
    address: str
    token: str | None = None
    """To be sent with every call."""
    http: str = ""
    beside: Sequence[int] = field(default_factory=tuple)
    """Process ids of what counts with it: its Redis servers."""

    def cpu_s(self) -> float:
        return sum(map(cpu_ns, (self.process.pid, *self.beside))) / 1e9

    def own_cpu_s(self) -> float:
        """Without what it leans on."""
        return cpu_ns(self.process.pid) / 1e9

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def start_floor(address: str = "127.0.0.1:0") -> Server:
    process = subprocess.Popen([sys.executable, "-c", FLOOR, address], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    return Server(process, address if address.startswith("unix:") else f"127.0.0.1:{port}")


def start_headgate(
    directory: Path,
    *flags: str,
    token: str | None = None,
    rules: str | None = None,
    beside: Sequence[int] = (),
    grpc: str = "127.0.0.1:0",
    stdout: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Server:
    """Serving the rules given, or what is in the directory. `environ`: what is set besides."""
    if rules is not None:
        (directory / "bench.yaml").write_text(rules)
    command = [sys.executable, "-m", "headgate", "serve", "--rules", str(directory), "--log-format", "json"]
    command += ["--grpc", grpc, "--http", "127.0.0.1:0", *flags]
    if token is not None:
        (directory / "tokens").write_text(token)
        command += ["--token-file", str(directory / "tokens")]
    process = subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})}
    )
    assert process.stderr is not None
    for line in process.stderr:
        event = json.loads(line)
        if event.get("event") == "serving":
            return Server(process, event["grpc"], token, event["http"], beside)
    raise SystemExit("headgate did not start")
