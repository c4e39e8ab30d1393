"""Generate the Python messages and stubs of protos/: Envoy's into client/, our own into server/.

    python protos/generate.py [CLIENT_DIR SERVER_DIR]

The output depends on nothing but protos/ and the version of grpcio-tools that
pyproject.toml pins; tests/unit/test_protos.py compares it with what is committed.
"""

import re
import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent
CLIENT = PROTOS.parent / "client"
SERVER = PROTOS.parent / "server"
WIRE_PACKAGE = "headgate.wire."
_SERVICE = re.compile(r"^service (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_METHOD = re.compile(r"rpc (\w+)\((\w+)\) returns \(\w+\)")


def generate(client: Path, server: Path) -> None:
    _messages("headgate_client", client)
    _stubs("headgate_client", client)
    # Without stubs: it reads and writes the bytes of a stream itself.
    _messages("headgate", server)


def _messages(folder: str, output: Path) -> None:
    _protoc([f"--python_out={output}", f"--pyi_out={output}"], _sources(folder))


def _stubs(folder: str, output: Path) -> None:
    # Only where there is a service: the plugin writes an empty module otherwise.
    services = [source for source in _sources(folder) if "\nservice " in (PROTOS / source).read_text(encoding="utf-8")]
    _protoc([f"--grpc_python_out={output}"], services)
    for path in output.rglob("*_pb2_grpc.py"):
        # The messages are private, the service is called by its official name.
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f"'/{WIRE_PACKAGE}", "'/").replace(f"'{WIRE_PACKAGE}", "'"), encoding="utf-8")
    for source in services:
        name = source.removesuffix(".proto")
        (output / f"{name}_pb2_grpc.pyi").write_text(_stub_types(name), encoding="utf-8")


def _stub_types(name: str) -> str:
    """Types of the stubs: gRPC's plugin writes none. What a method returns depends on its channel, sync or asyncio."""
    folder, _, module = f"{name}_pb2".rpartition("/")
    lines = ["from typing import Any", "", f"from {folder.replace('/', '.')} import {module}"]
    for service, body in _SERVICE.findall((PROTOS / f"{name}.proto").read_text(encoding="utf-8")):
        asked = [(method, f"{module}.{request}") for method, request in _METHOD.findall(body)]
        lines += ["", f"class {service}Stub:", "    def __init__(self, channel: Any) -> None: ..."]
        lines += [
            f"    def {method}(self, request: {request}, **options: Any) -> Any: ..." for method, request in asked
        ]
        lines += ["", f"class {service}Servicer:"]
        lines += [f"    def {method}(self, request: {request}, context: Any) -> Any: ..." for method, request in asked]
        lines += ["", f"def add_{service}Servicer_to_server(servicer: {service}Servicer, server: Any) -> None: ..."]
    return "\n".join(lines) + "\n"


def _sources(folder: str) -> list[str]:
    return sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / folder).rglob("*.proto"))


def _protoc(outputs: list[str], sources: list[str]) -> None:
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    if protoc.main(["protoc", f"--proto_path={PROTOS}", f"--proto_path={well_known}", *outputs, *sources]) != 0:
        raise SystemExit("protoc failed")


if __name__ == "__main__":
    generate(*([Path(path) for path in sys.argv[1:]] or [CLIENT, SERVER]))
