"""Values that are wrong are refused before anything is installed, with the key's name; all of them are explained."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import headgate
import pytest
import yaml
from headgate.cli import commands
from headgate.config.settings import SETTINGS

from charts import generate
from tests.chart import matrix
from tests.support.helm import CHART, HelmError, containers, helm, merged, pod_specs, render
from tests.support.source import ROOT
from tests.unit.test_docs import anchors

PEER = {"exchange": {"peers": {"us": "h:8082"}}}


def test_an_image_may_be_named_by_its_digest() -> None:
    """docs/deploy.md asks for it: a tag may be another image tomorrow."""
    digest = f"sha256:{'0' * 63}7"
    (image,) = {
        container["image"]
        for pod in pod_specs(render({"image": {"repository": "r.example/headgate", "tag": "9", "digest": digest}}))
        for container in containers(pod)
    }
    assert image == f"r.example/headgate@{digest}"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": -1}, "replicas: Must be greater than or equal to 0"),
        ({"replicas": "three"}, "replicas: Invalid type. Expected: integer, given: string"),
        ({"replcas": 3}, "Additional property replcas is not allowed"),
        ({"networkPolicy": {"enable": True}}, "networkPolicy: Additional property enable is not allowed"),
        ({"kind": "ReplicaSet"}, 'kind: kind must be one of the following: "Deployment", "StatefulSet", "DaemonSet"'),
        ({"exchange": {"peers": {"-us": "h:8082"}}}, 'exchange.peers: Property name of "-us" does not match'),
        ({"exchange": {"peers": {"us": "no-port"}}}, 'exchange.peers.us does not match: "HOST:PORT or [IPV6]:PORT"'),
        ({"region": "eu west"}, 'region does not match: "letters, digits, '),
        ({"origin": {"url": "redis://user:hunter2@redis"}}, 'origin.url does not match: "a URL without a password'),
        ({"origin": {"url": "redis://:hunter2@redis"}}, 'origin.url does not match: "a URL without a password'),
        ({"origin": {"url": "mysql://db"}}, 'origin.url does not match: "memory://, redis://HOST:PORT'),
        ({"origin": {"password": "hunter2"}}, "origin: Additional property password is not allowed"),
        (
            {"extraEnv": [{"name": "REDIS_PASSWORD", "value": "hunter2"}]},
            'extraEnv.0 does not match: "a variable whose value is in a Secret (valueFrom.secretKeyRef)"',
        ),
        (
            {"extraEnv": [{"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "x-key=hunter2"}]},
            'extraEnv.0 does not match: "a variable whose value is in a Secret',
        ),
        (
            {"extraEnv": [{"name": "HEADGATE_ORIGIN", "value": "redis://:hunter2@redis"}]},
            'extraEnv.0 does not match: "a variable that is no setting of Headgate',
        ),
        ({"rules": {"edge.json": {}}}, 'rules: Property name of "edge.json" does not match'),
        (
            {"rules": {"a.yaml": {"domain": "a", "descriptors": [{"key": "user", "rate_limt": {}}]}}},
            "rules.a.yaml.descriptors.0: Additional property rate_limt is not allowed",
        ),
        (
            {"rules": {"a.yaml": {"domain": "a", "descriptors": [{"key": "user", "rate_limit": {"unit": "minut"}}]}}},
            'rules.a.yaml.descriptors.0.rate_limit.unit must be one of the following: "second"',
        ),
        ({"config": {"response_header": True}}, "config: Additional property response_header is not allowed"),
        ({"config": {"grpc": "0.0.0.0:1"}}, "config: Additional property grpc is not allowed"),
        ({"rulesFrom": "http://h:1"}, 'rulesFrom does not match: "empty, `xds://host:port`, or `plane://'),
        ({"config": {"max_cells": 1}}, "config.max_cells: Must be greater than or equal to 1000"),
        ({"config": {"log_level": "loud"}}, "config.log_level: config.log_level must be one of the following"),
        (
            {"config": {"otlp_endpoint": "https://me:hunter2@collector:4318"}},
            'config.otlp_endpoint does not match: "a URL without a password',
        ),
        ({"ports": {"grpc": 80}}, "ports.grpc: Must be greater than or equal to 1024"),
        ({"drainSeconds": 1}, "drainSeconds: Must be greater than or equal to 5"),
        ({"image": {"digest": "latest"}}, 'image.digest does not match: "sha256: and 64 digits'),
        ({"existingConfigMaps": [{"directory": "a"}]}, "existingConfigMaps.0: name is required"),
        # What is about two values.
        ({"replicas": 2}, "origin.url: memory:// counts in one pod alone"),
        ({"kind": "DaemonSet"}, "origin.url: memory:// counts in one pod alone"),
        ({"workers": 2}, "workers: several processes can't share memory://"),
        ({"origin": {"url": "redis://me@redis"}}, "origin.url: names a user, and there is no password"),
        (merged(PEER, {"region": "us", "exchange": {"insecure": True}}), "exchange.peers.us: is this region itself"),
        (PEER, "exchange.peers: regions must prove who they are"),
        (merged(PEER, {"exchange": {"mode": "separate", "insecure": True}}), "exchange.mode: separate: memory://"),
        ({"tls": {"clientCertificates": True}}, "tls.clientCertificates: needs tls.existingSecret"),
        ({"tls": {"clientNames": ["a"]}}, "tls.clientNames: needs tls.clientCertificates"),
        ({"keys": {"enabled": True}}, "keys.enabled: who changes a limit must be known"),
        ({"plane": {"enabled": True}}, "plane.enabled: who changes rules must be known"),
        (
            {"plane": {"upstream": "h:8083", "postgresql": {"existingSecret": {"name": "db"}}}},
            "plane.postgresql: is for roots, and with plane.upstream these are relays",
        ),
        (
            {"plane": {"postgresql": {"tlsSecret": "tls"}}},
            "plane.postgresql.tlsSecret: needs plane.postgresql.",
        ),
        ({"rulesFrom": "plane://h:8083"}, "planeToken.existingSecret.name: a plane is followed by those who show"),
        ({"keys": {"tls": {"clientCertificates": True}}}, "keys.tls.clientCertificates: needs keys.tls.existingSecret"),
        (
            {"data": {"volume": {"emptyDir": {"sizeLimit": "1Gi"}}}},
            "data.volume.emptyDir.sizeLimit: 1Gi is too small for the decision log (1024 MiB",
        ),
        (
            {"config": {"decision_log_bytes": 4_294_967_296}},
            "data.volume.emptyDir.sizeLimit: 2Gi is too small for the decision log (4096 MiB",
        ),
        (
            {"kind": "Sidecar", "workers": 2, "devRedis": {"enabled": True}},
            "workers: a sidecar has one socket, so it is one process",
        ),
        (
            merged(PEER, {"kind": "Sidecar", "exchange": {"insecure": True}}),
            "exchange.mode: other regions can't reach sidecars; use separate",
        ),
        (
            {"kind": "Sidecar", "istio": {"enabled": True}},
            "istio.enabled: a gateway asks over the network, and sidecars have no Service",
        ),
        (
            {"tokens": {"existingSecret": {"name": "t"}}, "envoyGateway": {"enabled": True}},
            "envoyGateway.enabled: the callers' token would stand in the filter for everybody to read",
        ),
        (
            {"tls": {"existingSecret": "t"}, "istio": {"enabled": True}},
            "istio.transportSocket: is empty, and Headgate has TLS",
        ),
        ({"rules": {"big.yaml": "# " + "x" * 1_000_000}}, "rules: are more than a ConfigMap holds (1 MiB)"),
        ({"rulesSync": {"enabled": True}}, "rulesSync.container: is empty"),
        (
            {"rulesSync": {"enabled": True, "container": matrix.SYNC}},
            "rulesSync.initContainer: is empty, and there are no other rules",
        ),
        ({"kind": "StatefulSet", "data": {"enabled": False}}, "data.enabled: is false, and keeping data is all"),
        (
            {"kind": "StatefulSet", "data": {"claim": {"size": "1Gi"}}},
            "data.claim.size: 1Gi is too small for the decision log (1024 MiB",
        ),
        ({"data": {"claim": {"size": "big"}}}, 'data.claim.size does not match: "a size such as 2Gi"'),
        (
            {"replicas": 3, "podDisruptionBudget": {"minAvailable": 3}, "devRedis": {"enabled": True}},
            "podDisruptionBudget.minAvailable: 3 of 3 pods: none may ever be away",
        ),
        (
            {"podDisruptionBudget": {"minAvailable": "100%"}},
            "podDisruptionBudget.minAvailable: 100% of 1 pods: none may ever be away",
        ),
        (
            {"service": {"loadBalancerClass": "nlb"}},
            "service.loadBalancerClass: needs service.type: LoadBalancer",
        ),
        (
            {"exchange": {"service": {"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}},
            "exchange.service.loadBalancerSourceRanges: needs exchange.service.type: LoadBalancer",
        ),
        (
            {"service": {"externalTrafficPolicy": "Local"}},
            "service.externalTrafficPolicy: needs service.type: LoadBalancer or NodePort",
        ),
        (
            {"autoscaling": {"enabled": True, "external": True}, "devRedis": {"enabled": True}},
            "autoscaling.external: leaves scaling to somebody else",
        ),
        ({"autoscaling": {"external": True}}, "origin.url: memory:// counts in one pod alone"),
        ({"ports": {"admin": 8080}}, "ports: each must be another one"),
        (
            {"kind": "DaemonSet", "autoscaling": {"enabled": True}, "devRedis": {"enabled": True}},
            "autoscaling: only a Deployment or a StatefulSet can be scaled",
        ),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 9, "maxReplicas": 3}, "devRedis": {"enabled": True}},
            "autoscaling.minReplicas: is more than autoscaling.maxReplicas",
        ),
    ],
)
def test_a_mistake_is_refused_with_the_keys_name(values: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmError) as refused:
        render(values)
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("pair", matrix.IMPOSSIBLE, ids=str)
def test_what_the_matrix_leaves_out_is_refused(pair: dict[str, str]) -> None:
    with pytest.raises(HelmError):
        render(merged(*(matrix.SWITCHES[name][option] for name, option in pair.items())))


def test_what_is_written_from_others_is_as_it_would_be_written() -> None:
    """The README, the schema and the alerts of the chart: run `make docs`."""
    for path, content in generate.outputs().items():
        assert path.read_text() == content, f"{path.name}: run `make docs`"


def paths(values: Any, prefix: str = "") -> list[str]:
    if not isinstance(values, dict) or not values:
        return [prefix]
    return [path for key, value in values.items() for path in paths(value, f"{prefix}.{key}".lstrip("."))]


def test_every_value_is_explained() -> None:
    source = (CHART / "values.yaml").read_text()
    explained = [path for path, _ in generate.documented(source.splitlines())]
    missing = [
        path
        for path in paths(yaml.safe_load(source))
        if not any(f"{path}.".startswith(f"{name}.") for name in explained)
    ]
    assert missing == []
    assert len(explained) > 100


def test_every_setting_is_a_value_of_its_own_or_one_of_config() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    named = set(schema["properties"]["config"]["properties"])
    assert named | generate.SET_BY_THE_CHART == {setting.name for setting in SETTINGS}
    assert not named & generate.SET_BY_THE_CHART


def test_every_alert_leads_to_what_to_do() -> None:
    """Each has its heading in docs/runbook.md, and no heading is of an alert that is gone."""
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(alerts) > 5
    page = "https://github.com/headgate/headgate/blob/main/docs/runbook.md"
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"{page}#{alert['alert'].lower()}"
    assert anchors(ROOT / "docs" / "runbook.md") - {"runbook", "at-3-am", "the-alerts"} == {
        alert["alert"].lower() for alert in alerts
    }


def test_a_package_can_be_made_of_it(tmp_path: Path) -> None:
    assert helm("package", CHART, "--destination", tmp_path).startswith("Successfully packaged")
    assert [path.name for path in tmp_path.iterdir()] == [f"headgate-{headgate.__version__}.tgz"]


def test_the_chart_has_the_servers_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == headgate.__version__


NOTES_AS_MANIFEST = """
{{{{- define "notes" }}}}{}{{{{ end }}}}
kind: Notes
apiVersion: v1
text: {{{{ include "notes" . | quote }}}}
"""


def notes(tmp_path: Path, values: dict[str, Any]) -> str:
    """Helm shows them only beside a cluster; so a copy of the chart has them as a manifest."""
    copied = shutil.copytree(CHART, tmp_path / "headgate", dirs_exist_ok=True)
    text = (copied / "templates" / "NOTES.txt").read_text()
    (copied / "templates" / "notes.yaml").write_text(NOTES_AS_MANIFEST.format(text))
    values_file = tmp_path / "values.yaml"
    values_file.write_text(json.dumps(values))
    shown = helm("template", "x", copied, "--namespace", "limits", "--values", values_file)
    (found,) = [part for part in yaml.safe_load_all(shown) if part and part["kind"] == "Notes"]
    return str(found["text"])


def test_the_notes_say_where_it_is_and_what_to_mind(tmp_path: Path) -> None:
    alone = notes(tmp_path, {"networkPolicy": {"enabled": False}})
    assert "x-headgate-headless.limits:8081" in alone
    assert "These are example rules" in alone
    assert "port-forward deployment/x-headgate 9090, then http://127.0.0.1:9090/ (the page)" in alone
    assert "`headgate key`, `block` and `explain` are off: keys.enabled" in alone
    assert "the job x-headgate-rules-check checks all of them" in alone
    assert "On memory:// each pod counts by itself" in alone
    assert "port 9090 asks for no token" in alone
    given = notes(tmp_path, {"devRedis": {"enabled": True}, "kind": "DaemonSet", "rules": matrix.RULES})
    assert "devRedis has no password" in given
    assert "port-forward daemonset/x-headgate 9090" in given
    assert "example rules" not in given
    assert "port 9090: pods of this namespace alone (networkPolicy.operators)" in given
    assert "get configmap x-headgate-sidecar" in notes(tmp_path, {"kind": "Sidecar"})


@pytest.mark.parametrize("how", ["tokens", "mutual"])
def test_the_notes_show_the_command_that_operators_type(tmp_path: Path, how: str) -> None:
    """As the command line reads it, at the port that is forwarded."""
    shown = notes(tmp_path, {**matrix.SWITCHES["keys"][how], "ports": {"keys": 8099}})
    assert "port-forward deployment/x-headgate 8099" in shown
    (command,) = [line.strip() for line in shown.splitlines() if line.strip().startswith("headgate key get")]
    asked = commands._parser().parse_args(shlex.split(command)[1:])
    assert asked.addr == "127.0.0.1:8099"
    assert bool(asked.tls_ca and asked.tls_cert) == (how == "mutual")
    assert bool(asked.token_file) == (how == "tokens")


def test_the_notes_say_which_ports_of_redis_are_open_and_what_is_checked_when(tmp_path: Path) -> None:
    network = {"redisPorts": [7000], "operators": matrix.PROMETHEUS}
    shown = notes(
        tmp_path,
        {
            "origin": {"url": "redis://a:6380,b"},
            "networkPolicy": network,
            "rulesCheck": {"enabled": False},
            "rules": matrix.RULES,
            "rulesSync": {"enabled": True, "container": matrix.SYNC},
        },
    )
    assert "Redis: ports 6379, 6380, 7000 alone (origin.url, networkPolicy.redisPorts)" in shown
    assert "port 9090: networkPolicy.operators alone" in shown
    assert "rulesCheck is off" in shown
    assert "Those of rulesSync are checked by the server" in shown
