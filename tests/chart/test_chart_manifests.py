"""What the chart renders, for its defaults, its examples and a matrix of switches: valid, and as safe as it says."""

import copy
import functools
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from headgate.cli import commands
from headgate.cli.serve import flags_of
from headgate.config import Settings, load_settings
from headgate.config.kinds import parse_peer
from headgate.origin.redis_origin.url import parse_redis_url
from headgate.runtime.memory_limit import COUNTER_BYTES, MIB, PROCESS_BYTES, counters_within

from tests.chart import matrix
from tests.chart.crds import custom_problems, is_custom
from tests.support import headgate
from tests.support.helm import (
    CHART,
    EXAMPLES,
    WORKLOADS,
    HelmError,
    Manifest,
    containers,
    helm,
    of_kind,
    only,
    pod_specs,
    problems,
    render,
    versions,
)
from tests.support.source import ROOT

DASHBOARD = ROOT / "examples" / "grafana" / "headgate.json"
COMBINATIONS = matrix.combinations()
EXAMPLE_FILES = sorted(EXAMPLES.glob("*.yaml"))
CASES = {
    "defaults": None,
    **{path.stem: path for path in EXAMPLE_FILES},
    **{f"matrix-{number}": matrix.values_of(combination) for number, combination in enumerate(COMBINATIONS)},
}


@functools.cache
def rendered(case: str) -> list[Manifest]:
    return render(CASES[case])


def everything() -> Iterator[tuple[str, list[Manifest]]]:
    for case in CASES:
        yield case, rendered(case)


def test_the_matrix_has_every_pair_of_switches_and_at_least_forty_combinations() -> None:
    assert len(COMBINATIONS) >= 40
    assert matrix.pairs() <= set().union(*(matrix.met(combination) for combination in COMBINATIONS))
    assert {path.stem for path in EXAMPLE_FILES} == {
        "single-region",
        "three-regions",
        "region-per-zone",
        "one-zone",
        "sidecar",
        "ai-gateway",
    }


@pytest.mark.parametrize("values", [None, *EXAMPLE_FILES], ids=lambda path: path.stem if path else "defaults")
def test_helm_lint_has_nothing_to_say(values: Any) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, *(["--values", values] if values else []))


@pytest.mark.parametrize("case", CASES)
def test_every_manifest_is_valid_for_the_oldest_and_the_newest_versions(case: str) -> None:
    """By Kubernetes's own schemas, where an unknown field is an error; what others define, by theirs."""
    assert len(versions()) == 6
    manifests = rendered(case)
    assert manifests
    assert [problem for manifest in manifests if is_custom(manifest) for problem in custom_problems(manifest)] == []
    own = [manifest for manifest in manifests if not is_custom(manifest)]
    assert [problem for manifest in own for version in versions() for problem in problems(manifest, version)] == []


@pytest.mark.parametrize(
    ("case", "kind"), [("defaults", "Deployment"), ("single-region", "PrometheusRule"), ("defaults", "NetworkPolicy")]
)
def test_an_unknown_field_would_be_noticed(case: str, kind: str) -> None:
    broken = copy.deepcopy(only(rendered(case), kind))
    broken["spec"]["replcas"] = 1
    assert custom_problems(broken) if is_custom(broken) else all(problems(broken, version) for version in versions())


SIDECARS = [f"matrix-{n}" for n, combination in enumerate(COMBINATIONS) if combination["kind"] == "Sidecar"]


@pytest.mark.parametrize("case", ["sidecar", *SIDECARS])
def test_the_sidecars_snippet_is_a_valid_part_of_a_pod(case: str) -> None:
    (spec,) = [spec for spec in pod_specs(rendered(case)) if spec["containers"][0]["name"] == "headgate"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "with-sidecar"}, "spec": spec}
    assert [problem for version in versions() for problem in problems(pod, version)] == []


def settings_of(container: Manifest) -> Settings:
    """What its flags say; the file of `config` is not read."""
    words = list(container["args"])
    if "--config" in words:
        place = words.index("--config")
        del words[place : place + 2]
    return load_settings({"rules": ".", **flags_of(commands._parser().parse_args(words))}, {})


def sidecar_of(values: Any) -> Manifest:
    (spec,) = [spec for spec in pod_specs(render(values)) if spec["containers"][0]["name"] == "headgate"]
    return spec


def test_the_sidecar_example_keeps_last_good_rules_and_the_decision_log_in_a_volume_of_the_pod() -> None:
    pod = sidecar_of(EXAMPLES / "sidecar.yaml")
    (container,) = pod["containers"]
    settings = settings_of(container)
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == str(settings.data_dir)]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    assert "readOnly" not in mount
    assert volume == {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}
    assert pod["securityContext"]["fsGroup"], "or the server's user could not write there"
    values = yaml.safe_load((EXAMPLES / "sidecar.yaml").read_text())
    assert values["config"]["decision_log_bytes"] + 512 * MIB <= 1024 * MIB


@pytest.mark.parametrize("cpu", [None, "1", "250m"])
def test_a_sidecars_cpu_quota_is_an_option(cpu: str | None) -> None:
    limits = {"memory": "512Mi", **({} if cpu is None else {"cpu": cpu})}
    values = {"kind": "Sidecar", "sidecar": {"resources": {"limits": limits}}}
    pod = sidecar_of(values)
    assert pod["containers"][0]["resources"]["limits"] == limits
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "with-sidecar"}, "spec": pod}
    assert [problem for version in versions() for problem in problems(manifest, version)] == []


def test_counters_that_follow_from_a_memory_limit_fit_into_it_with_everything_else_that_is_bounded() -> None:
    """Of each container that serves: the process, a full table, plans, and calls that are pending or half there."""
    for case in ("defaults", *(path.stem for path in EXAMPLE_FILES)):
        for pod in pod_specs(rendered(case)):
            for container in pod["containers"]:
                if "serve" in container["args"]:
                    settings = settings_of(container)
                    limit = mebibytes(container["resources"]["limits"]["memory"]) * MIB
                    counters = counters_within(limit, settings.workers) * COUNTER_BYTES
                    rest = settings.match_cache_bytes + settings.max_pending_bytes + settings.max_unfinished_bytes
                    assert PROCESS_BYTES + counters + rest <= limit, case


def mebibytes(size: str) -> int:
    return int(size.removesuffix("Gi")) * 1024 if size.endswith("Gi") else int(size.removesuffix("Mi"))


# Zones


@pytest.mark.parametrize("preferred", ["PreferClose", "PreferSameZone", "PreferSameNode"])
def test_callers_are_led_to_pods_of_their_own_zone(preferred: str) -> None:
    manifests = render({"service": {"trafficDistribution": preferred}}, kubernetes="1.35.0")
    service = only(manifests, "Service", "headgate")
    assert service["spec"]["trafficDistribution"] == preferred
    assert [problem for version in versions()[3:] for problem in problems(service, version)] == []
    assert "trafficDistribution" not in only(manifests, "Service", "headgate-headless")["spec"], "it names every pod"


@pytest.mark.parametrize(
    ("preferred", "version", "needed"), [("PreferClose", "1.30.9", "1.31"), ("PreferSameZone", "1.33.0", "1.34")]
)
def test_an_older_kubernetes_that_would_lead_callers_anywhere_is_refused(
    preferred: str, version: str, needed: str
) -> None:
    said = f"service.trafficDistribution: {preferred} needs Kubernetes {needed}, and this one is v{version}"
    with pytest.raises(HelmError, match=re.escape(said)):
        render({"service": {"trafficDistribution": preferred}}, kubernetes=version)


def test_callers_of_a_daemon_set_are_led_to_their_own_machine() -> None:
    values = {"kind": "DaemonSet", "origin": {"countAlone": True}, "service": {"internalTrafficPolicy": "Local"}}
    service = only(render(values), "Service", "headgate")
    assert service["spec"]["internalTrafficPolicy"] == "Local"
    assert [problem for version in versions() for problem in problems(service, version)] == []


@pytest.mark.parametrize("case", ["region-per-zone", "one-zone"])
def test_pods_of_a_zone_run_in_it_alone_and_spread_over_its_machines(case: str) -> None:
    manifests = rendered(case)
    for pod in pod_specs(of_kind(manifests, "Deployment")):
        assert pod["nodeSelector"] == {"topology.kubernetes.io/zone": "eu-1a"}
        (spread,) = pod["topologySpreadConstraints"]
        assert spread["topologyKey"] == "kubernetes.io/hostname"


def said_by(example: Path) -> list[str]:
    """The arguments that an example's first lines give to Helm for another region than its own."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), example.read_text().splitlines())
    command = "\n".join(line.removeprefix("#") for line in comment if line.startswith("#   "))
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:2] == ["helm", "install"]
    assert words[words.index("-f") + 1] == example.name
    return words[words.index("-f") + 2 :]


def peers_of(manifests: list[Manifest], name: str) -> dict[str, str]:
    """Peers of a Deployment's first container: what is in the ConfigMap that its file is mounted from."""
    (pod,) = [item["spec"]["template"]["spec"] for item in of_kind(manifests, "Deployment", name)]
    container = pod["containers"][0]
    file = settings_of(container).peer_file
    assert file is not None
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == str(file.parent)]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    text = only(manifests, "ConfigMap", volume["configMap"]["name"])["data"][file.name]
    return {peer.region: peer.address for peer in map(parse_peer, text.splitlines())}


def test_the_other_of_three_regions_is_installed_as_the_example_says() -> None:
    example = EXAMPLES / "three-regions.yaml"
    assert set(peers_of(render(example), "headgate-exchange")) == {"us", "ap"}
    manifests = render(example, more=said_by(example))
    assert set(peers_of(manifests, "headgate-exchange")) == {"eu", "ap"}


@pytest.mark.parametrize("example", ["three-regions.yaml", "region-per-zone.yaml"])
def test_another_peer_restarts_no_pod(example: str) -> None:
    manifests = render(EXAMPLES / example)
    more = render(EXAMPLES / example, more=["--set", "exchange.peers.sa=10.0.0.1:8082"])
    assert manifests != more
    assert pod_specs(manifests) == pod_specs(more)


def test_the_other_zone_is_installed_as_the_example_says() -> None:
    """Two regions that know each other by the names of Services that there are, each with a Redis of its own zone."""
    example = EXAMPLES / "region-per-zone.yaml"
    installed = {"eu-1a": render(example), "eu-1b": render(example, more=said_by(example))}
    for zone, manifests in installed.items():
        pod = only(manifests, "Deployment", f"headgate-{zone}")["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"topology.kubernetes.io/zone": zone}
        settings = settings_of(pod["containers"][0])
        assert settings.region == zone
        assert f"@redis-{zone}." in settings.origin
        others = {"eu-1a", "eu-1b", "eu-1c"} - {zone}
        assert peers_of(manifests, f"headgate-{zone}") == {name: f"headgate-{name}-exchange:8082" for name in others}
        assert only(manifests, "Service", f"headgate-{zone}-exchange")["spec"]["type"] == "ClusterIP"
        assert [problem for m in manifests for version in versions() for problem in problems(m, version)] == []


def test_the_zone_local_redis_is_two_replicated_shards() -> None:
    pod = only(rendered("one-zone"), "Deployment", "headgate")["spec"]["template"]["spec"]
    url = parse_redis_url(settings_of(pod["containers"][0]).origin)
    assert url.services == ("limits-0", "limits-1")


def test_names_are_no_longer_than_kubernetes_takes_and_unique() -> None:
    for case, manifests in everything():
        names = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
        assert len(set(names)) == len(names), case
        assert [name for *_, name in names if len(name) > 63] == [], case
        for manifest in manifests:
            assert all(len(value) <= 63 for value in manifest["metadata"]["labels"].values()), case


# Safety


def test_every_container_is_bound_to_no_rights_and_some_resources() -> None:
    for case, manifests in everything():
        for pod in pod_specs(manifests):
            for container in containers(pod):
                context = {**pod.get("securityContext", {}), **container["securityContext"]}
                assert context["allowPrivilegeEscalation"] is False, case
                assert context["readOnlyRootFilesystem"] is True, case
                assert context["capabilities"] == {"drop": ["ALL"]}, case
                assert "privileged" not in context, case
                assert set(container["resources"]) == {"requests", "limits"}, case
                assert {"cpu", "memory"} <= set(container["resources"]["requests"]), case
                assert "memory" in container["resources"]["limits"], case


def test_every_pod_of_ours_is_no_root_and_has_no_token() -> None:
    for case, manifests in everything():
        for manifest in manifests:
            for pod in pod_specs([manifest]) if manifest["kind"] != "ConfigMap" else []:
                assert pod["automountServiceAccountToken"] is False, case
                assert pod["securityContext"]["runAsNonRoot"] is True, case
                assert pod["securityContext"]["runAsUser"] > 0, case
                assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, case
                assert not pod.get("hostNetwork"), case
        for account in of_kind(manifests, "ServiceAccount"):
            assert account["automountServiceAccountToken"] is False, case


def test_no_secret_is_rendered_and_none_is_in_an_environment() -> None:
    """Secrets are files that others keep, mounted for the group alone."""
    for case, manifests in everything():
        assert of_kind(manifests, "Secret") == [], case
        for pod in pod_specs(manifests):
            for container in containers(pod):
                assert [item for item in container.get("env", []) if "valueFrom" in item] == [], case
            for volume in pod.get("volumes", []):
                if "secret" in volume:
                    assert volume["secret"]["defaultMode"] == 0o440, case


def test_every_volume_is_there_and_used_and_writable_ones_are_few() -> None:
    writable = {"tmp", "data", "more", "headgate-socket", "rules-synced"}
    for case, manifests in everything():
        for pod in pod_specs(manifests):
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            mounts = [mount for container in containers(pod) for mount in container.get("volumeMounts", [])]
            assert {mount["name"] for mount in mounts} == volumes, case
            written = {mount["name"] for mount in mounts if not mount.get("readOnly")}
            assert written <= writable, case
            assert ("rules-synced" in written) == ("rules-synced" in volumes), f"{case}: somebody must write the rules"
            for container in containers(pod):
                places = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
                assert [(a, b) for a in places for b in places if a != b and a.startswith(f"{b}/")] == [], case


# Rules


def test_rules_are_directories_inside_the_rules_directory() -> None:
    """A file mounted by `subPath` is never updated; a mount inside another can't be made on a read-only one."""
    seen = 0
    for case, manifests in everything():
        for pod in pod_specs(manifests):
            sources = {v["name"] for v in pod.get("volumes", []) if v["name"].startswith("rules")}
            for container in containers(pod):
                for mount in container.get("volumeMounts", []):
                    if mount["name"] in sources and mount["mountPath"] != "/synced":
                        assert mount["mountPath"].startswith("/etc/headgate/rules/"), case
                        assert "subPath" not in mount, case
                        seen += 1
    assert seen > 50


def templates(manifests: list[Manifest]) -> list[Any]:
    return [m["spec"]["template"] for m in manifests if m["kind"] in WORKLOADS]


@pytest.mark.parametrize("example", ["single-region", "three-regions"])
def test_another_rule_changes_no_pod_and_another_setting_does(example: str) -> None:
    values = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    before = render(values)
    other = copy.deepcopy(values)
    (name,) = other["rules"]
    other["rules"][name]["descriptors"][0]["rate_limit"]["requests_per_unit"] = 7
    after = render(other)
    assert templates(after) == templates(before)
    assert only(after, "ConfigMap", "headgate-rules") != only(before, "ConfigMap", "headgate-rules")
    assert templates(render({**values, "config": {"shadow_mode": True}})) != templates(before)


def test_an_overlay_is_a_watched_directory_of_servers_and_exchangers() -> None:
    values = yaml.safe_load((EXAMPLES / "three-regions.yaml").read_text())
    overlay = {"o.yaml": {"overlay": [{"domain": "default/*", "on_error": "closed"}]}}
    before, manifests = render(values), render({**values, "rulesOverlay": overlay})
    assert yaml.safe_load(only(manifests, "ConfigMap", "headgate-overlay")["data"]["o.yaml"]) == overlay["o.yaml"]
    pods = [template["spec"] for template in templates(manifests)]
    assert len(pods) == len(templates(before)) > 1
    for pod in pods:
        (container,) = pod["containers"]
        place = container["args"][container["args"].index("--rules-overlay") + 1]
        (mount,) = (item for item in container["volumeMounts"] if item["mountPath"] == place)
        (volume,) = (item for item in pod["volumes"] if item["name"] == mount["name"])
        assert (volume["configMap"]["name"], "subPath" in mount) == ("headgate-overlay", False)
    other = render({**values, "rulesOverlay": {"o.yaml": "overlay: []"}})
    assert templates(other) == templates(manifests)


def test_the_example_of_rules_is_there_while_there_are_no_others_and_no_longer() -> None:
    def files(case: str) -> set[str]:
        return {name for found in of_kind(rendered(case), "ConfigMap", "headgate-rules") for name in found["data"]}

    assert files("defaults") == {"edge.yaml"}
    assert files("three-regions") == {"api.yaml"}
    assert not {
        name
        for manifests in (
            render(values) for values in (matrix.SWITCHES["rules"]["others"], matrix.SWITCHES["sync"]["on"])
        )
        for found in of_kind(manifests, "ConfigMap")
        for name in found["data"]
    }


def test_a_hook_checks_the_new_rules_before_anything_is_changed() -> None:
    manifests = rendered("defaults")
    job = only(manifests, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["backoffLimit"] == 0
    (volume,) = job["spec"]["template"]["spec"]["volumes"]
    new = only(manifests, "ConfigMap", volume["configMap"]["name"])
    assert new["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert int(new["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0
    assert new["data"] == only(manifests, "ConfigMap", "headgate-rules")["data"]


# What runs


@functools.cache
def documented_flags(command: tuple[str, ...]) -> frozenset[str]:
    shown = headgate.run(*command, "--help")
    assert shown.returncode == 0, shown.stderr
    return frozenset(re.findall(r"--[a-z][a-z0-9-]*", shown.stdout))


COMMANDS = {
    **{name: (name,) for name in ("serve", "exchange", "plane", "check")},
    "rules": ("rules", "check"),
}


def test_every_flag_exists() -> None:
    seen: set[str] = set()
    for case, manifests in everything():
        for pod in pod_specs(manifests):
            for container in pod["containers"]:
                if "headgate" not in container["image"]:
                    continue
                words = container["args"]
                flags = {word for word in words if word.startswith("--")}
                assert flags <= documented_flags(COMMANDS[words[0]]), case
                seen |= {words[0], *flags}
    assert {
        *COMMANDS,
        "--peer-file",
        "--exchange-inside",
        "--tls-client-san",
        "--token-file",
        "--trusted-network",
        "--admin-grpc",
    } <= seen


def test_every_command_is_one_that_the_process_accepts(tmp_path: Path) -> None:
    """Values and pairs of them too, with the config file beside them; what the secrets hold is not known here."""
    parser, seen = commands._parser(), 0
    for _, manifests in everything():
        files = {name: text for found in of_kind(manifests, "ConfigMap") for name, text in found["data"].items()}
        (tmp_path / "headgate.yaml").write_text(files.get("headgate.yaml", ""))
        for container in (container for pod in pod_specs(manifests) for container in pod["containers"]):
            words = container.get("args", [""])
            if words[0] not in ("serve", "exchange"):
                continue
            here = [word.replace("/etc/headgate/config/", f"{tmp_path}/") for word in words]
            settings = load_settings({"rules": ".", **flags_of(parser.parse_args(here))}, {})
            if settings.origin.startswith("redis"):
                parse_redis_url(settings.origin)
            seen += 1
    assert seen > len(COMBINATIONS)


def test_probes_ask_real_paths_at_the_port_for_health_and_a_pod_has_time_to_drain() -> None:
    for case, manifests in everything():
        for pod in pod_specs(manifests):
            for container in pod["containers"]:
                if container.get("args", [""])[0] not in ("serve", "exchange"):
                    continue
                ports = {port["name"]: port["containerPort"] for port in container["ports"]}
                words = container["args"]
                assert words[words.index("--http") + 1].endswith(f":{ports['http']}"), case
                assert words[words.index("--admin") + 1].endswith(f":{ports['admin']}"), case
                paths = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
                assert {at["port"] for at in paths.values()} == {"http"}, case
                assert [at["path"] for at in paths.values()] == ["/healthz", "/healthz", "/readyz"], case
                drain_s = float(words[words.index("--drain-s") + 1])
                ready = container["readinessProbe"]
                assert ready["periodSeconds"] * ready["failureThreshold"] < drain_s, case
                assert drain_s + 10 <= pod["terminationGracePeriodSeconds"], case


# The network


def ports_of(rules: list[Manifest]) -> set[tuple[str, int]]:
    assert all(rule.get("ports") for rule in rules), "a rule without ports is a rule for all of them"
    return {(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]}


DNS = {("UDP", 53), ("TCP", 53)}
REDIS_PORTS = {
    "memory": (),
    "password": (6379, 6380),
    "secret": (6379, 7000),
    "sentinel": (6379, 26379, 26380),
    "tls": (6379,),
    "dev": (6379,),
}
DECISIONS = {("TCP", 8081), ("TCP", 8080)}
ADMIN = {("TCP", 9090)}
KEYS = {("TCP", 8083)}
EXCHANGE = {("TCP", 8082)}
PEERS = {("TCP", 8082), ("TCP", 9082)}


@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_a_network_policy_admits_what_is_documented_and_nothing_else(number: int) -> None:
    combination, manifests = COMBINATIONS[number], rendered(f"matrix-{number}")
    policies = {
        policy["metadata"]["labels"]["app.kubernetes.io/component"]: policy["spec"]
        for policy in of_kind(manifests, "NetworkPolicy")
    }
    if combination["network"] == "off":
        assert policies == {}
        return
    closed = combination["network"] == "closed"
    redis = {("TCP", port) for port in REDIS_PORTS[combination["origin"]]}
    more = {("TCP", 4317)} if closed else set()
    more |= {("TCP", 4318)} if combination["config"] == "pushed" else set()
    operators = ADMIN | (KEYS if combination["keys"] != "none" else set())
    inside = combination["exchange"] in ("inside", "tokens", "insecure")
    separate = combination["exchange"] == "separate"
    expected: dict[str, tuple[set[tuple[str, int]], set[tuple[str, int]]]] = {}
    if combination["kind"] != "Sidecar":
        expected["server"] = (
            DECISIONS | operators | (EXCHANGE if inside else set()),
            DNS
            | redis
            | more
            | (PEERS if inside else set())
            | ({("TCP", 443)} if combination["sync"] == "on" else set())
            | (KEYS if combination["plane"] == "relay" else set()),
        )
        if combination["origin"] == "dev":
            expected["redis"] = ({("TCP", 6379)}, set())
    if combination["plane"] != "none":
        above = {"root": set(), "roots": {("TCP", 6432)}, "relay": KEYS}[combination["plane"]]
        expected["plane"] = ({("TCP", 8080)} | ADMIN | KEYS, DNS | above)
    if separate:
        expected["exchange"] = (EXCHANGE | ADMIN, DNS | redis | more | PEERS)
    found = {name: (ports_of(spec["ingress"]), ports_of(spec["egress"])) for name, spec in policies.items()}
    assert found == expected
    assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in policies.values())
    for name, ports in (("server", operators), ("exchange", ADMIN), ("plane", ADMIN)):
        admin = [rule for rule in policies.get(name, {}).get("ingress", []) if ports_of([rule]) == ports]
        assert [bool(rule.get("from")) for rule in admin] == [True] * (name in policies), "it is never for everybody"


def test_only_relays_and_roots_that_share_a_database_are_several() -> None:
    for number, combination in enumerate(COMBINATIONS):
        found = of_kind(rendered(f"matrix-{number}"), "StatefulSet")
        replicas = [each["spec"]["replicas"] for each in found if each["metadata"]["name"].endswith("-plane")]
        assert replicas == {"none": [], "root": [1], "roots": [3], "relay": [2]}[combination["plane"]], number


def test_helm_test_reaches_the_server_whoever_else_may() -> None:
    """The pod of the hook is admitted where callers are named, as in the example."""
    manifests = rendered("single-region")
    policy = only(manifests, "NetworkPolicy")["spec"]
    (decisions,) = [rule for rule in policy["ingress"] if ports_of([rule]) == DECISIONS]
    tester = only(manifests, "Pod")["metadata"]["labels"].items()
    admitted = [peer["podSelector"]["matchLabels"] for peer in decisions["from"] if "podSelector" in peer]
    assert [labels for labels in admitted if labels.items() <= tester]


def test_sidecars_have_exchangers_of_their_own() -> None:
    """Told to leave it to others, they must have others: that speak, and that are found."""
    numbers = [n for n, c in enumerate(COMBINATIONS) if c["kind"] == "Sidecar" and c["exchange"] == "separate"]
    assert numbers
    for number in numbers:
        manifests = rendered(f"matrix-{number}")
        (exchanger,) = [d for d in of_kind(manifests, "Deployment") if d["metadata"]["name"].endswith("-exchange")]
        account = exchanger["spec"]["template"]["spec"]["serviceAccountName"]
        made = {account["metadata"]["name"] for account in of_kind(manifests, "ServiceAccount")}
        assert account in made | {"default"}
        (service,) = [s for s in of_kind(manifests, "Service") if s["metadata"]["name"].endswith("-exchange")]
        assert service["spec"]["selector"].items() <= exchanger["spec"]["template"]["metadata"]["labels"].items()


def test_services_lead_to_ports_and_pods_that_exist() -> None:
    for case, manifests in everything():
        workloads = [m["spec"] for m in manifests if m["kind"] in WORKLOADS]
        for service in of_kind(manifests, "Service"):
            wanted = service["spec"]["selector"].items()
            (workload,) = [w for w in workloads if wanted <= w["template"]["metadata"]["labels"].items()]
            names = {
                port["name"]
                for container in workload["template"]["spec"]["containers"]
                for port in container.get("ports", [])
            }
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= names, case


def test_decisions_health_admin_and_exchange_have_ports_apart() -> None:
    services = {
        s["metadata"]["name"]: {p["name"] for p in s["spec"]["ports"]}
        for s in of_kind(rendered("three-regions"), "Service")
    }
    assert services == {
        "headgate": {"grpc", "http"},
        "headgate-headless": {"grpc"},
        "headgate-admin": {"admin"},
        "headgate-exchange": {"exchange"},
    }
    assert only(rendered("three-regions"), "Service", "headgate-headless")["spec"]["clusterIP"] == "None"


def test_the_dashboard_comes_as_grafana_reads_it() -> None:
    found = only(rendered("single-region"), "ConfigMap", "headgate-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["headgate.json"]) == json.loads(DASHBOARD.read_text())


def test_the_autoscaler_goes_by_cpu_and_leaves_the_replicas_alone() -> None:
    manifests = rendered("single-region")
    (metric,) = only(manifests, "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["resource"]["name"] == "cpu"
    assert "replicas" not in only(manifests, "Deployment")["spec"]
