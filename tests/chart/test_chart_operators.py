"""Wishes of those who run a cluster: budgets, scaling, monitors, annotations, load balancers, volumes, names."""

import re
from typing import Any

import pytest
import yaml

from tests.chart import matrix
from tests.chart.crds import custom_problems
from tests.support.helm import Manifest, containers, merged, of_kind, only, pod_specs, problems, render, versions
from tests.support.source import ROOT

REDIS = {"devRedis": {"enabled": True}}
PAGE = (ROOT / "docs" / "deploy.md").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()


def invalid(manifests: list[Manifest]) -> list[str]:
    return [problem for manifest in manifests for version in versions() for problem in problems(manifest, version)]


@pytest.mark.parametrize(
    ("budget", "spec"),
    [
        ({}, {"maxUnavailable": 1}),
        ({"maxUnavailable": "25%"}, {"maxUnavailable": "25%"}),
        ({"minAvailable": 2}, {"minAvailable": 2}),
        ({"minAvailable": 0}, {"minAvailable": 0}),
        ({"minAvailable": "60%"}, {"minAvailable": "60%"}),
    ],
)
def test_a_budget_says_how_many_may_go_or_must_stay(budget: dict[str, Any], spec: dict[str, Any]) -> None:
    manifests = render({"replicas": 3, "podDisruptionBudget": budget, **REDIS})
    found = dict(only(manifests, "PodDisruptionBudget")["spec"])
    del found["selector"]
    assert found == spec


# Scaling


def test_the_autoscaler_goes_by_our_own_metrics_beside_cpu() -> None:
    for kind in ("Deployment", "StatefulSet"):
        scaling = {"enabled": True, "metrics": [matrix.DECISIONS_PER_SECOND]}
        manifests = render({"kind": kind, "autoscaling": scaling, **REDIS})
        spec = only(manifests, "HorizontalPodAutoscaler")["spec"]
        assert [metric["type"] for metric in spec["metrics"]] == ["Resource", "Pods"]
        assert spec["scaleTargetRef"]["kind"] == kind
        assert "replicas" not in only(manifests, kind, "headgate")["spec"]
        assert invalid(of_kind(manifests, "HorizontalPodAutoscaler")) == []


def test_another_scaler_is_not_set_back_by_an_upgrade() -> None:
    manifests = render({"autoscaling": {"external": True}, **REDIS})
    assert "replicas" not in only(manifests, "Deployment", "headgate")["spec"]
    assert of_kind(manifests, "HorizontalPodAutoscaler") == []


def shown(first: str) -> Any:
    """A block of YAML on the page, by how it begins."""
    blocks = re.findall(r"^ *```yaml\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    (found,) = [text for text in blocks if text.lstrip().startswith(first)]
    return yaml.safe_load(found)


def test_the_page_scales_by_metrics_that_there_are_and_what_the_chart_installs() -> None:
    """With an adapter for an HPA, or with KEDA."""
    (rule,) = shown("# values of prometheus-adapter")["rules"]["custom"]
    name = rule["name"]["matches"].strip("^$")
    assert f"| `{name}` |" in METRICS
    values = shown("# by CPU and by decisions")
    (metric,) = values["autoscaling"]["metrics"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    assert invalid(of_kind(render(merged(values, REDIS)), "HorizontalPodAutoscaler")) == []
    scaled = shown("# KEDA")
    assert custom_problems(scaled) == []
    only(render({"autoscaling": {"external": True}, **REDIS}), "Deployment", scaled["spec"]["scaleTargetRef"]["name"])
    queries = [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    assert len(queries) == 2
    for query in queries:
        (series,) = re.findall(r"\b(?:headgate|process)_[a-z_]+", query)
        assert f"| `{series}` |" in METRICS


# Monitors


def test_a_monitor_elsewhere_finds_the_pods_and_does_as_it_is_told() -> None:
    exchange = {"mode": "separate", "peers": {"us": "h:8082"}, "insecure": True}
    elsewhere = matrix.SWITCHES["monitoring"]["elsewhere"]
    manifests = render(merged(elsewhere, {"exchange": exchange, **REDIS}))
    for kind, endpoints in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")):
        monitor = only(manifests, kind)
        assert monitor["metadata"]["namespace"] == "monitoring"
        assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["limits"]}
        (endpoint,) = monitor["spec"][endpoints]
        asked = elsewhere["serviceMonitor"]
        assert {name: endpoint[name] for name in ("scrapeTimeout", "relabelings", "metricRelabelings")} == {
            name: asked[name] for name in ("scrapeTimeout", "relabelings", "metricRelabelings")
        }
    plain = only(render(matrix.SWITCHES["monitoring"]["on"]), "ServiceMonitor")
    assert "namespace" not in plain["metadata"]
    assert set(plain["spec"]["endpoints"][0]) == {"port", "path", "interval"}


# Annotations


def test_everything_has_the_common_annotations_and_keeps_its_own() -> None:
    everything = merged(
        REDIS,
        matrix.SWITCHES["monitoring"]["on"],
        {
            "commonAnnotations": {"owner": "edge"},
            "workloadAnnotations": {"reloader": "yes"},
            "service": {"annotations": {"owner": "network"}},
            "serviceAccount": {"annotations": {"role": "none"}},
            "exchange": {"mode": "separate", "peers": {"us": "h:8082"}, "insecure": True},
            "autoscaling": {"enabled": True},
            "istio": {"enabled": True},
            "config": {"response_headers": True},
        },
    )
    manifests = render(everything)
    assert len({manifest["kind"] for manifest in manifests}) > 10
    notes = {(m["kind"], m["metadata"]["name"]): m["metadata"]["annotations"] for m in manifests}
    assert {owner["owner"] for name, owner in notes.items() if name != ("Service", "headgate")} == {"edge"}
    assert notes["Service", "headgate"]["owner"] == "network"
    assert notes["Job", "headgate-rules-check"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert {name for name, owner in notes.items() if "reloader" in owner} == {
        ("Deployment", "headgate"),
        ("Deployment", "headgate-exchange"),
    }
    assert notes["ServiceAccount", "headgate"]["role"] == "none"


# Load balancers


def test_load_balancers_are_chosen_and_guarded() -> None:
    fields = {
        "type": "LoadBalancer",
        "loadBalancerClass": "service.k8s.aws/nlb",
        "loadBalancerSourceRanges": ["203.0.113.0/24"],
        "externalTrafficPolicy": "Local",
    }
    exchange = {"peers": {"us": "h:8082"}, "insecure": True, "service": fields}
    manifests = render({"service": fields, "exchange": exchange})
    for name in ("headgate", "headgate-exchange"):
        spec = only(manifests, "Service", name)["spec"]
        assert {field: spec[field] for field in fields} == fields
    for name in ("headgate-headless", "headgate-admin"):
        assert "loadBalancerClass" not in only(manifests, "Service", name)["spec"]


# A StatefulSet


def test_a_stateful_set_keeps_each_pods_decision_log_in_a_volume_of_its_own() -> None:
    claim = {"size": "4Gi", "storageClassName": "fast", "annotations": {"backup": "no"}, "whenScaled": "Delete"}
    manifests = render({"kind": "StatefulSet", "replicas": 3, "data": {"claim": claim}, **REDIS})
    stateful = only(manifests, "StatefulSet")
    assert invalid([stateful]) == []
    spec = stateful["spec"]
    (template,) = spec["volumeClaimTemplates"]
    assert template["metadata"] == {"name": "data", "annotations": {"backup": "no"}}
    assert template["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "4Gi"}},
    }
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Delete"}
    assert "data" not in {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    (container,) = spec["template"]["spec"]["containers"]
    assert {"name": "data", "mountPath": "/var/lib/headgate"} in container["volumeMounts"]
    governing = only(manifests, "Service", spec["serviceName"])["spec"]
    assert governing["clusterIP"] == "None"
    assert governing["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["replicas"] == 3
    assert spec["template"]["spec"]["topologySpreadConstraints"]


# Pods


def test_names_are_resolved_as_the_values_say() -> None:
    values = {
        "dnsPolicy": "ClusterFirst",
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "exchange": {"mode": "separate", "peers": {"us": "h:8082"}, "insecure": True},
        **REDIS,
    }
    ours = [pod for pod in pod_specs(render(values)) if pod["containers"][0]["name"] != "redis"]
    assert len(ours) == 4
    for pod in ours:
        assert pod["dnsPolicy"] == "ClusterFirst"
        assert pod["dnsConfig"] == values["dnsConfig"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Sidecar"])
def test_what_runs_before_the_server_comes_before_what_fetches_its_rules(kind: str) -> None:
    sync = matrix.SWITCHES["sync"]["on"]
    before = {"kind": kind, "extraInitContainers": [{**matrix.SYNC, "name": "wait", "securityContext": matrix.BOUND}]}
    for values, names in ((before, ["wait"]), (merged(before, sync), ["wait", "first"]), (merged(sync), ["first"])):
        manifests = render(merged(values, {"kind": kind}, REDIS))
        (pod,) = [pod for pod in pod_specs(manifests) if containers(pod)[-1]["name"] in ("headgate", "git-sync")]
        assert [container["name"] for container in pod["initContainers"]] == names


def test_few_old_versions_are_kept() -> None:
    exchange = {"mode": "separate", "peers": {"us": "h:8082"}, "insecure": True}
    manifests = render({"revisionHistoryLimit": 2, "exchange": exchange, **REDIS})
    assert only(manifests, "Deployment", "headgate")["spec"]["revisionHistoryLimit"] == 2
    assert only(manifests, "Deployment", "headgate-exchange")["spec"]["revisionHistoryLimit"] == 2
