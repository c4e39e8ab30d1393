"""The rendered commands, run: ready, deciding, reloading as a kubelet swaps files, draining within the grace period."""

import contextlib
import json
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from headgate_client import Headgate as Limiter

from tests.conformance.origin.test_redis_faults import RIGHTS
from tests.conformance.transport.certificates import authority, issued_by
from tests.support import headgate
from tests.support.headgate import Headgate, http_request, start
from tests.support.helm import EXAMPLES, Manifest, of_kind, only, pod_specs, render
from tests.support.kubelet import Volumes
from tests.support.redis_servers import RedisServer
from tests.support.waiting import PATIENCE_S, wait_until

RULES = {
    "edge.yaml": {
        "domain": "edge",
        "descriptors": [{"key": "user", "rate_limit": {"unit": "year", "requests_per_unit": 5}}],
    }
}
TOKEN = "a-token-of-this-test"  # noqa: S105
SECRETS = {
    "redis": {"password": "sesame"},
    "tokens": {"tokens": f"{TOKEN}\n"},
    "exchange": {"tokens": "region-token\n"},
}


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """With the documented user, who may do nothing else."""
    with RedisServer() as server:
        server.command("ACL", "SETUSER", "headgate", "on", ">sesame", "~headgate:*", *RIGHTS)
        yield server


def values_for(redis: RedisServer, **more: Any) -> dict[str, Any]:
    return {
        "replicas": 2,
        "region": "eu",
        "drainSeconds": 5,
        "rules": RULES,
        "origin": {"url": f"redis://headgate@{redis.address}", "passwordSecret": {"name": "redis"}, "deadlineMs": 1000},
        "config": {"response_headers": True},
        **more,
    }


def config_maps(manifests: list[Manifest]) -> dict[str, dict[str, str]]:
    return {item["metadata"]["name"]: item["data"] for item in of_kind(manifests, "ConfigMap")}


@contextlib.contextmanager
def running(
    pod: Manifest,
    manifests: list[Manifest],
    volumes: Volumes,
    name: str = "headgate",
    secrets: Mapping[str, Mapping[str, str]] = SECRETS,
) -> Iterator[Headgate]:
    (container,) = [item for item in pod["containers"] if item["name"] == name]
    volumes.mount(pod, container, config_maps(manifests), secrets)
    with start(*volumes.command(container)) as process:
        yield process


def pod_of(manifests: list[Manifest], name: str) -> Manifest:
    spec: Manifest = only(manifests, "Deployment", name)["spec"]["template"]["spec"]
    return spec


def admin_of(process: Headgate) -> str:
    address: str = process.wait_for_event("serving")["admin"]
    return address


def remaining(process: Headgate, user: str) -> int:
    with Limiter(process.grpc, "edge", token=TOKEN, timeout=PATIENCE_S) as limiter:
        result = limiter.check(user=user)
        assert not result.degraded
        assert result.remaining is not None
        return result.remaining


def tls_secrets() -> dict[str, dict[str, str]]:
    """A server's certificate by the Service's name, one that callers show, and a region's."""
    ca = authority("cluster")

    def secret(*names: str) -> dict[str, str]:
        issued = issued_by(ca, names[0], *names)
        files = {"ca.crt": ca.cert_pem, "tls.crt": issued.cert_pem, "tls.key": issued.key_pem}
        return {name: data.decode() for name, data in files.items()}

    return {"tls": secret("headgate"), "caller": secret("edge.example"), "region": secret("eu")}


def test_a_rendered_server_lives_as_kubernetes_would_have_it(redis: RedisServer, tmp_path: Path) -> None:
    """Probes, answers, a rules change by symlink swap without a restart, SIGTERM and an end within the grace period."""
    values = values_for(redis, tokens={"existingSecret": {"name": "tokens"}})
    manifests, volumes = render(values), Volumes(tmp_path)
    pod = pod_of(manifests, "headgate")
    (container,) = pod["containers"]
    with running(pod, manifests, volumes) as server:
        server.wait_ready()
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert server.get(container[probe]["httpGet"]["path"]).status == 200, probe
        assert server.get("/metrics").status == 404, "metrics are on the admin port"
        assert http_request(admin_of(server), "GET", "/metrics").status == 200
        assert remaining(server, "alice") == 4
        changed = {
            "edge.yaml": json.dumps(
                {
                    **RULES["edge.yaml"],
                    "descriptors": [{"key": "user", "rate_limit": {"unit": "year", "requests_per_unit": 50}}],
                }
            )
        }
        volumes.project("/etc/headgate/rules/values", changed)
        wait_until(lambda: remaining(server, "bob") > 40, "the new rules")
        assert remaining(server, "alice") == 48, "counts stay"
        begun = time.monotonic()
        server.send(signal.SIGTERM)
        wait_until(lambda: server.get(container["readinessProbe"]["httpGet"]["path"]).status == 503, "not ready")
        assert remaining(server, "alice") == 47, "it answers while callers leave"
        assert server.wait_exit() == 0
        assert time.monotonic() - begun < pod["terminationGracePeriodSeconds"]


def test_a_stateful_pod_explains_what_it_denied_in_an_earlier_life(redis: RedisServer, tmp_path: Path) -> None:
    """Another pod of the same name has the same volume: the first one's decision log is there."""
    manifests, volumes = render(values_for(redis, kind="StatefulSet")), Volumes(tmp_path)
    (pod,) = pod_specs(of_kind(manifests, "StatefulSet"))
    with running(pod, manifests, volumes) as first:
        first.wait_ready()
        assert [remaining(first, "eve") for _ in range(6)] == [4, 3, 2, 1, 0, 0]
        first.send(signal.SIGTERM)
        assert first.wait_exit() == 0
    with running(pod, manifests, volumes) as second:
        second.wait_ready()
        place = str(volumes.path("/var/lib/headgate"))
        shown = headgate.run("explain", "--data-dir", place, "--domain", "edge", "--descriptor", "user=eve")
        assert "denied" in shown.stdout, shown.stderr


def test_a_rendered_exchanger_becomes_ready(redis: RedisServer, tmp_path: Path) -> None:
    """With certificates and a token; that it waits for a peer which is not there keeps it from nothing."""
    exchange = {
        "mode": "separate",
        "peers": {"us": "127.0.0.1:1"},
        "tls": {"existingSecret": "region"},
        "tokens": {"existingSecret": {"name": "exchange"}},
    }
    manifests = render(values_for(redis, exchange=exchange))
    pod = pod_of(manifests, "headgate-exchange")
    secrets = {**SECRETS, **tls_secrets()}
    with running(pod, manifests, Volumes(tmp_path), "exchange", secrets) as exchanger:
        exchanger.wait_exchanging()
        wait_until(lambda: exchanger.get("/readyz").status == 200, "it to be ready")
        assert exchanger.get("/healthz").status == 200
        exchanger.send(signal.SIGTERM)
        assert exchanger.wait_exit() == 0


def test_a_rendered_sidecar_is_asked_over_its_socket(redis: RedisServer, tmp_path: Path) -> None:
    example = render(EXAMPLES / "sidecar.yaml")
    assert of_kind(example, "Deployment") == of_kind(example, "Service") == []
    manifests = render(values_for(redis, kind="Sidecar"))
    (pod, *_) = [spec for spec in pod_specs(manifests) if spec["containers"][0]["name"] == "headgate"]
    volumes = Volumes(tmp_path)
    with running(pod, manifests, volumes) as server:
        server.wait_ready()
        socket = volumes.path("/run/headgate/grpc.sock")
        assert server.grpc == f"unix:{socket}"
        assert socket.stat().st_mode & 0o777 == 0o660
        asked = headgate.run("check", "--addr", server.grpc, "--timeout", "30", "--domain", "edge", "user=a")
        assert asked.returncode == 0, asked.stderr


def test_a_sidecar_of_the_example_keeps_its_rules_and_its_decisions_over_a_restart(
    redis: RedisServer, tmp_path: Path
) -> None:
    """The container ends and is started anew in its pod, where rules are wrong by then: its volume is still there."""
    example = yaml.safe_load((EXAMPLES / "sidecar.yaml").read_text())
    of_example = {name: example[name] for name in ("kind", "sidecar", "data", "config")}
    manifests, volumes = render(values_for(redis, **of_example)), Volumes(tmp_path)
    (pod, *_) = [spec for spec in pod_specs(manifests) if spec["containers"][0]["name"] == "headgate"]
    with running(pod, manifests, volumes) as server:
        server.wait_ready()
        with Limiter(server.grpc, "edge", timeout=PATIENCE_S) as limiter:
            assert [bool(limiter.check(user="alice")) for _ in range(6)] == [True] * 5 + [False]
        server.send(signal.SIGTERM)
        assert server.wait_exit() == 0
    wrong = [{**item, "data": {"edge.yaml": "domain: ["}} if is_rules(item) else item for item in manifests]
    with running(pod, wrong, volumes) as server:
        server.wait_ready()
        assert remaining(server, "bob") == 4, "by the last good rules"
        data = str(volumes.path("/var/lib/headgate"))
        shown = headgate.run("explain", "--data-dir", data, "--domain", "edge", "user=alice")
        assert shown.returncode == 0, shown.stderr
        assert "The request was denied" in shown.stdout


def is_rules(manifest: Manifest) -> bool:
    return manifest["kind"] == "ConfigMap" and str(manifest["metadata"]["name"]).endswith("-rules")


@pytest.mark.parametrize(("second", "status"), [("path", 0), ("user", 1)])
def test_the_hook_finds_wrong_rules(second: str, status: int, tmp_path: Path) -> None:
    """Rules that no schema finds fault with: the same key twice."""
    text = "domain: edge\ndescriptors:\n- key: user\n- key: %s\n  rate_limit: {unit: day, requests_per_unit: 5}\n"
    rules = {"edge.yaml": text % second}
    manifests, volumes = render({"rules": rules}), Volumes(tmp_path)
    pod = only(manifests, "Job")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes.mount(pod, container, config_maps(manifests), {})
    ended = headgate.run(*volumes.command(container))
    assert ended.returncode == status
    assert ("values/edge.yaml:" in ended.stdout + ended.stderr) == bool(status)


def test_helm_test_asks_a_real_question_and_operators_are_served(redis: RedisServer, tmp_path: Path) -> None:
    """Of a server that asks for certificates with certain names, and for tokens; `headgate key` at its own port."""
    values = values_for(
        redis,
        tls={"existingSecret": "tls", "clientCertificates": True, "clientNames": ["edge.example"]},
        tokens={"existingSecret": {"name": "tokens"}},
        keys={"enabled": True, "tokens": {"existingSecret": {"name": "operators"}}},
        test={"tlsSecret": "caller"},
    )
    manifests, volumes = render(values), Volumes(tmp_path / "server")
    secrets = {**SECRETS, **tls_secrets(), "operators": {"tokens": f"ann={TOKEN}\n"}}
    with running(pod_of(manifests, "headgate"), manifests, volumes, secrets=secrets) as server:
        server.wait_ready()
        pod, tester = only(manifests, "Pod")["spec"], Volumes(tmp_path / "test")
        (container,) = pod["containers"]
        tester.mount(pod, container, {}, secrets)
        command = [word.replace("headgate:8081", server.grpc) for word in tester.command(container)]
        # Where the name of the Service leads elsewhere.
        asked = headgate.run(*command, "--tls-server-name", "headgate")
        assert asked.returncode == 0, asked.stderr
        assert json.loads(asked.stdout)["statuses"][0]["remaining"] == 4
        keys = server.wait_for_event("serving")["admin_grpc"]
        token = str(volumes.path("/etc/headgate/tokens/tokens"))
        looked = headgate.run("key", "get", "--addr", keys, "--token-file", token, "--domain", "edge", "user=helm-test")
        assert looked.returncode == 0, looked.stderr


def test_a_wrong_password_stops_a_rollout(redis: RedisServer, tmp_path: Path) -> None:
    manifests = render(
        values_for(
            redis,
            origin={"url": f"redis://nobody@{redis.address}", "passwordSecret": {"name": "redis"}, "waitSeconds": 2},
        )
    )
    with running(pod_of(manifests, "headgate"), manifests, Volumes(tmp_path)) as server:
        assert server.wait_exit() == 1
        assert "WRONGPASS" in server.lines[-1]
