"""The examples of other languages, built and run: the long form of what test_client_docs.py checks of them.

    python -m tests.client.languages [DIRECTORY]

Stubs are made here, of Envoy's official descriptors (xds-protos), by Debian's protoc and plugins: the packages of Go,
Maven and npm are not needed, and nothing is installed. It wants Debian or Ubuntu, a package index, Go, a JDK and Node.
Debian's gRPC for Go is older than the example's: two calls that it does not have yet are put in its own words. Of
Node only the syntax can be checked, as Debian has no gRPC for it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from google.protobuf import descriptor_pb2

from tests.support.headgate import serve
from tests.support.source import ROOT

EXAMPLES = ROOT / "examples" / "client"
TIMEOUT_S = 900.0
PLUGINS = ("protobuf-compiler", "protobuf-compiler-grpc-java-plugin", "protoc-gen-go-1-5", "protoc-gen-go-grpc")
LIBRARIES = ("libprotobuf32", "libprotoc32")
GO = (
    "golang-google-grpc-dev",
    "golang-google-protobuf-dev",
    "golang-google-genproto-dev",
    "golang-golang-x-net-dev",
    "golang-golang-x-sys-dev",
    "golang-golang-x-text-dev",
    "golang-github-golang-protobuf-1-5-dev",
)
JAVA = (
    "libgrpc-java",
    "libprotobuf-java",
    "libopencensus-java",
    "libnetty-java",
    "libperfmark-java",
    "libguava-java",
    "libjsr305-java",
    "libgeronimo-annotation-1.3-spec-java",
)
OLDER_GO = (
    ('\t"google.golang.org/grpc/credentials/insecure"\n', ""),
    ("grpc.NewClient(", "grpc.Dial("),
    ("grpc.WithTransportCredentials(insecure.NewCredentials())", "grpc.WithInsecure()"),
)
DESCRIPTORS = """
import sys
from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf import descriptor_pb2
found = {}
def add(file):
    for needed in file.dependencies:
        add(needed)
    if file.name not in found:
        file.CopyToProto(found.setdefault(file.name, descriptor_pb2.FileDescriptorProto()))
add(rls_pb2.DESCRIPTOR)
sys.stdout.buffer.write(descriptor_pb2.FileDescriptorSet(file=list(found.values())).SerializeToString())
"""
GENERATED = re.compile(r"^@javax\.annotation\.Generated\(.*?\)\n", re.MULTILINE | re.DOTALL)
"""An annotation that no JDK has had since 11."""


def say(text: str) -> None:
    sys.stdout.write(f"languages: {text}\n")
    sys.stdout.flush()


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> bytes:
    """What it prints; with all of it in the error if it fails."""
    environ = {**os.environ, **(env or {})}
    words = [str(word) for word in command]
    ended = subprocess.run(words, capture_output=True, cwd=cwd, env=environ, timeout=TIMEOUT_S, check=False)
    if ended.returncode:
        output = (ended.stdout + ended.stderr).decode(errors="replace")
        raise SystemExit(f"languages: {' '.join(words)[:200]}: status {ended.returncode}\n{output}")
    return ended.stdout


class Workshop:
    """A directory with Debian's packages in it, and the stubs that they make."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.root = place / "root"
        packages = place / "packages"
        packages.mkdir()
        run("apt-get", "download", *PLUGINS, *LIBRARIES, *GO, *JAVA, cwd=packages)
        for package in packages.glob("*.deb"):
            run("dpkg", "-x", package, self.root)
        (place / "rls.pb").write_bytes(
            run(sys.executable, "-c", DESCRIPTORS, env={"PYTHONPATH": str(Path(sys.prefix) / "xds")})
        )

    def protoc(self, *outputs: str) -> None:
        every = descriptor_pb2.FileDescriptorSet.FromString((self.place / "rls.pb").read_bytes())
        files = [file.name for file in every.file if not file.name.startswith("google/protobuf/")]
        (libraries,) = self.root.glob("usr/lib/*-linux-gnu")
        tools = self.root / "usr" / "bin"
        plugins = [f"--plugin=protoc-gen-{name}={tools / file}" for name, file in PLUGIN_FILES.items()]
        given = f"--descriptor_set_in={self.place / 'rls.pb'}"
        run(tools / "protoc", given, *plugins, *outputs, *files, env={"LD_LIBRARY_PATH": str(libraries)})


PLUGIN_FILES = {"go": "protoc-gen-go", "go-grpc": "protoc-gen-go-grpc", "grpc-java": "grpc_java_plugin"}

Ask = Callable[[str, str], str]
"""What the example prints for an address and a user."""


def build_go(shop: Workshop) -> Ask:
    run("gofmt", "-e", EXAMPLES / "go" / "main.go")
    path = shop.place / "go"
    shutil.copytree(shop.root / "usr" / "share" / "gocode" / "src", path / "src")
    shop.protoc(f"--go_out={path / 'src'}", f"--go-grpc_out={path / 'src'}")
    text = (EXAMPLES / "go" / "main.go").read_text()
    for newer, older in OLDER_GO:
        assert newer in text, newer
        text = text.replace(newer, older)
    source = path / "src" / "ask"
    source.mkdir()
    (source / "main.go").write_text(text)
    environ = {"GO111MODULE": "off", "GOFLAGS": "", "GOPATH": str(path), "GOCACHE": str(shop.place / "cache")}
    run("go", "build", "-o", path / "ask.exe", ".", cwd=source, env=environ)
    return lambda address, user: run(path / "ask.exe", address, user).decode()


def build_java(shop: Workshop) -> Ask:
    sources, classes = shop.place / "java", shop.place / "classes"
    sources.mkdir()
    shop.protoc(f"--java_out={sources}", f"--grpc-java_out={sources}")
    for stub in sources.rglob("*Grpc.java"):
        stub.write_text(GENERATED.sub("", stub.read_text()))
    jars = sorted(str(jar) for jar in jars_of(shop))
    with_classes = os.pathsep.join([str(classes), *jars])
    example = EXAMPLES / "java" / "src" / "main" / "java" / "Ask.java"
    run("javac", "-nowarn", "-proc:none", "-d", classes, "-cp", with_classes, *sources.rglob("*.java"), example)
    return lambda address, user: run("java", "-cp", with_classes, "Ask", address, user).decode()


def jars_of(shop: Workshop) -> list[Path]:
    """Links that lead out of the directory are to files that other packages have."""
    return [jar for jar in (shop.root / "usr" / "share" / "java").glob("*.jar") if jar.exists()]


def check(name: str, ask: Ask, address: str) -> None:
    allowed, denied = ask(address, f"{name}-user"), ask(address, "banned")
    say(f"{name}: {allowed.strip()!r}, {denied.strip()!r}")
    if not re.fullmatch(r"allowed, \d+ left\n", allowed) or not re.match(r"denied, again in [\d.]+ ?m?s", denied):
        raise SystemExit(f"languages: {name}: that is not what it should say")


def main() -> None:
    run("node", "--check", EXAMPLES / "node" / "client.js")
    say("node: no error in its syntax")
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        shop = Workshop(Path(folder))
        with serve(ROOT / "examples" / "rules") as server:
            check("go", build_go(shop), server.grpc)
            check("java", build_java(shop), server.grpc)


if __name__ == "__main__":
    main()
