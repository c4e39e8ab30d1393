"""Generate the Python messages and stubs of protos/ into client/.

    python protos/generate.py [OUTPUT_DIR]

The output depends on nothing but protos/ and the version of grpcio-tools that
pyproject.toml pins; tests/unit/test_protos.py compares it with what is committed.
"""

import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent
CLIENT = PROTOS.parent / "client"
WIRE_PACKAGE = "headgate.wire."


def generate(output: Path) -> None:
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [
        "protoc",
        f"--proto_path={PROTOS}",
        f"--proto_path={well_known}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    # Stubs only where there is a service: the plugin writes an empty module otherwise.
    services = [s for s in sources if "\nservice " in (PROTOS / s).read_text(encoding="utf-8")]
    if protoc.main([*arguments[:3], f"--grpc_python_out={output}", *services]) != 0:
        raise SystemExit("protoc failed")
    for path in output.rglob("*_pb2_grpc.py"):
        # The messages are private, the service is called by its official name.
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f"'/{WIRE_PACKAGE}", "'/").replace(f"'{WIRE_PACKAGE}", "'"), encoding="utf-8")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else CLIENT)
