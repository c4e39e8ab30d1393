"""A real Envoy Gateway on its own: policies from files, limits over xDS with the certificates that it makes itself.

It binds fixed ports on all addresses (18000 to 18002, 8081, 19001): run it in a network namespace of its own. No Envoy
is started by it here: callers ask the rate-limit service for what Envoy would ask.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE_S, wait_until

VERSION = "v1.9.1"
MODULE = f"github.com/envoyproxy/gateway/cmd/envoy-gateway@{VERSION}"
FOLLOWS = b"Watching path added"
XDS_ADDRESS = "127.0.0.1:18001"


def envoy_gateway(cache: Path) -> Path | None:
    """The program, installed as a Go module where it is not yet; None where there is no Go."""
    given = os.environ.get("ENVOY_GATEWAY")
    path = Path(given) if given else cache / "envoy-gateway"
    if not path.exists():
        if shutil.which("go") is None:
            return None
        cache.mkdir(parents=True, exist_ok=True)
        environ = {**os.environ, "GOBIN": str(cache), "GOFLAGS": "-mod=mod"}
        subprocess.run(["go", "install", MODULE], cwd=cache, env=environ, check=True)
    return path


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
        self.write("class", _object("GatewayClass", "eg", {"controllerName": CONTROLLER}, namespace=""))
        self.write("secret", self._secret())

    def _settings(self) -> dict[str, Any]:
        homes = {name: str(self._home) for name in ("configHome", "dataHome", "stateHome", "runtimeDir")}
        resource = {"type": "File", "file": {"paths": [str(self._objects)]}}
        custom = {"resource": resource, "infrastructure": {"type": "Host", "host": homes}}
        return {
            "apiVersion": EXTENSIONS,
            "kind": "EnvoyGateway",
            "gateway": {"controllerName": CONTROLLER},
            "provider": {"type": "Custom", "custom": custom},
            "rateLimit": {"backend": {"type": "Redis", "redis": {"url": "redis.local:6379"}}},
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
        """A Gateway with one route to a backend that nobody asks."""
        listener = {"name": "http", "protocol": "HTTP", "port": port}
        reference = {"group": EXTENSIONS.partition("/")[0], "kind": "Backend", "name": name}
        route = {
            "parentRefs": [{"name": name}],
            "rules": [{"backendRefs": [reference], "matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}],
        }
        self.write(
            name,
            _object("Gateway", name, {"gatewayClassName": "eg", "listeners": [listener]}),
            _object("HTTPRoute", name, route),
            _object("Backend", name, {"endpoints": [{"ip": {"address": "127.0.0.1", "port": 9}}]}, EXTENSIONS),
        )

    def set_policy(self, gateway: str, rules: Sequence[Mapping[str, Any]]) -> None:
        target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": gateway}
        spec = {"targetRefs": [target], "rateLimit": {"type": "Global", "global": {"rules": list(rules)}}}
        self.write(f"policy-{gateway}", _object("BackendTrafficPolicy", gateway, spec, EXTENSIONS))

    @contextlib.contextmanager
    def running(self) -> Iterator["EnvoyGateway"]:
        self.start()
        try:
            yield self
        finally:
            self.kill()

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

    @property
    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")


GATEWAY_API = "gateway.networking.k8s.io/v1"
EXTENSIONS = "gateway.envoyproxy.io/v1alpha1"
CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"


def _object(
    kind: str, name: str, spec: Mapping[str, Any], version: str = GATEWAY_API, namespace: str = "default"
) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": dict(spec)}
