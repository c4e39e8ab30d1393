"""examples/compose, as far as it goes without an engine: files by what reads them, commands as local processes."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from examples.processes import free_ports
from tests.support.envoy import run_envoy, validate
from tests.support.headgate import Headgate, http_request, start
from tests.support.redis_servers import RedisServer
from tests.support.source import ROOT
from tests.support.waiting import wait_until

PLACE = ROOT / "examples" / "compose"
COMPOSE = yaml.safe_load((PLACE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
HEADGATES = ("headgate-1", "headgate-2")

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
CONDITION = {"enum": ["service_started", "service_healthy", "service_completed_successfully"]}
DURATION = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


SERVICE = closed(
    image=TEXT,
    build=closed(context=TEXT),
    command=TEXTS,
    depends_on={"anyOf": [TEXTS, {"type": "object", "additionalProperties": closed(condition=CONDITION)}]},
    read_only={"type": "boolean"},
    tmpfs=TEXTS,
    cap_drop=TEXTS,
    security_opt=TEXTS,
    stop_grace_period=DURATION,
    restart={"enum": ["no", "always", "on-failure", "unless-stopped"]},
    healthcheck=closed(test=TEXTS, interval=DURATION, timeout=DURATION, retries={"type": "integer"}),
    volumes=TEXTS,
    ports=TEXTS,
    environment={"type": "object", "additionalProperties": TEXT},
)
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "patternProperties": {"^x-": {}},
    "properties": {
        "name": TEXT,
        "services": {"type": "object", "additionalProperties": {**SERVICE, "required": ["image"]}},
        "volumes": {"type": "object"},
    },
}
"""Of the Compose specification what is used here, and closed."""


def test_the_file_is_as_compose_reads_it() -> None:
    assert [f"{error.json_path}: {error.message}" for error in Draft202012Validator(SCHEMA).iter_errors(COMPOSE)] == []
    assert set(SERVICES) == {"redis", *HEADGATES, "envoy", "prometheus", "grafana"}


def test_everything_that_is_mounted_or_waited_for_is_there() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (PLACE / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], (name, source)
        assert set(service.get("depends_on", [])) <= set(SERVICES), name
    assert (PLACE / SERVICES["headgate-1"]["build"]["context"] / "Dockerfile").exists()


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_envoy_and_prometheus_accept_their_files(tmp_path: Path) -> None:
    done = validate(PLACE / "envoy.yaml", tmp_path)
    assert done.returncode == 0, done.stderr
    rules = ROOT / "examples" / "prometheus" / "alerts.yaml"
    config = (PLACE / "prometheus.yaml").read_text().replace("/etc/prometheus/alerts.yaml", str(rules))
    (tmp_path / "prometheus.yaml").write_text(config)
    promtool = Path(sys.executable).with_name("promtool")
    checked = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yaml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    scraped = yaml.safe_load(config)["scrape_configs"][0]["static_configs"][0]["targets"]
    assert scraped == [f"{name}:9090" for name in HEADGATES]


def test_grafana_finds_its_source_and_its_dashboard() -> None:
    (provider,) = yaml.safe_load((PLACE / "grafana" / "dashboards.yaml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert [path for path in mounted if path.startswith(provider["options"]["path"])]
    (source,) = yaml.safe_load((PLACE / "grafana" / "datasources.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert source["isDefault"]


@contextlib.contextmanager
def headgate(name: str, redis: RedisServer, tmp_path: Path) -> Iterator[Headgate]:
    """Its command and the image's own settings, with addresses on loopback."""
    words = [word.replace("redis:6379", redis.address) for word in SERVICES[name]["command"]]
    words = ["127.0.0.1:0" if re.fullmatch(r"0\.0\.0\.0:\d+", word) else word for word in words]
    words = [word.replace("/var/lib/headgate", str(tmp_path / name)) for word in words]
    places = {volume.split(":")[1]: volume.split(":")[0] for volume in SERVICES[name]["volumes"]}
    environ = {
        "HEADGATE_RULES": str(PLACE / places["/etc/headgate/rules"]),
        "HEADGATE_GRPC": "127.0.0.1:0",
        "HEADGATE_HTTP": "127.0.0.1:0",
        "HEADGATE_DRAIN_S": "0",
        "HEADGATE_ORIGIN_DEADLINE_MS": "1000",
    }
    with start(*words, environ=environ) as process:
        yield process.wait_ready()


def envoy_config(addresses: list[str]) -> Any:
    text = (PLACE / "envoy.yaml").read_text()
    for name, address in zip(HEADGATES, addresses, strict=True):
        host, _, port = address.rpartition(":")
        text = text.replace(f"address: {name}, port_value: 8081", f"address: {host}, port_value: {port}")
    (backend,) = free_ports(1)
    text = text.replace("address: 0.0.0.0, port_value: 10000", "address: 127.0.0.1, port_value: 0")
    return yaml.safe_load(text.replace("port_value: 10001", f"port_value: {backend}"))


@pytest.mark.slow
def test_the_commands_run_together(tmp_path: Path) -> None:
    """Redis, two Headgates and Envoy, as compose.yaml starts them: the sixth request of a user is denied."""
    program, *options = SERVICES["redis"]["command"]
    assert program == "redis-server"
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer(*options))
        servers = [stack.enter_context(headgate(name, redis, tmp_path)) for name in HEADGATES]
        for server in servers:
            admin = server.wait_for_event("serving")["admin"]
            assert b"headgate_decisions_total" in http_request(admin, "GET", "/metrics").body
            assert server.get("/metrics").status == 404
        envoy = stack.enter_context(run_envoy(envoy_config([server.grpc for server in servers])))
        wait_until(lambda: envoy.healthy_hosts() == 2, "both to be healthy")
        statuses = envoy.statuses("/", {"x-user": "alice"}, 10)
        # A minute that begins in between admits one or two more.
        assert statuses[:5] == [200] * 5
        assert 429 in statuses[5:]
