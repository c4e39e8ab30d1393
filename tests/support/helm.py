"""A real Helm, and Kubernetes's own schemas: a chart rendered, and what comes out judged. Nothing asks a cluster.

Rendering is a process of about 0.1 s. Judging is done in this process: schemas are read once per version, and a
manifest that was judged before is not judged again, so that a matrix of values costs what is different in it.
"""

import functools
import importlib.resources
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate import utils as schemas
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tests.support.source import ROOT
from tests.support.waiting import PATIENCE_S

CHART = ROOT / "charts" / "headgate"
EXAMPLES = CHART / "examples"
HELM = Path(sys.executable).with_name("helm")

Manifest = dict[str, Any]
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")


class HelmError(Exception):
    """Helm refused; the message is what it said."""


@functools.cache
def _home() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="headgate-helm-")


def helm(*arguments: str | Path) -> str:
    home = _home().name
    places = {f"HELM_{name}_HOME": home for name in ("CACHE", "CONFIG", "DATA")}
    ended = subprocess.run(
        [HELM, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**places, "PATH": os.environ["PATH"], "KUBECONFIG": f"{home}/none"},
    )
    if ended.returncode:
        raise HelmError(ended.stderr + ended.stdout)
    return ended.stdout


def render(
    values: Mapping[str, Any] | Path | None = None,
    *,
    release: str = "headgate",
    more: Sequence[str] = (),
    kubernetes: str = "",
) -> list[Manifest]:
    """Every manifest, hooks and tests included; `more` are further arguments of Helm's. Raises HelmError."""
    arguments: list[str | Path] = ["template", release, CHART, "--namespace", "limits", *more]
    if kubernetes:
        arguments += ["--kube-version", kubernetes]
    if isinstance(values, Path):
        return _parse(helm(*arguments, "--values", values))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(dict(values or {}), file)
        file.flush()
        return _parse(helm(*arguments, "--values", file.name))


def _parse(text: str) -> list[Manifest]:
    return [found for found in yaml.load_all(text, yaml.CSafeLoader) if found]


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Values over values, as Helm lays files over each other."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            inner = result.get(key)
            both = isinstance(inner, dict) and isinstance(value, Mapping)
            result[key] = merged(inner, value) if both and inner is not None else value
    return result


def of_kind(manifests: Sequence[Manifest], kind: str, name: str | None = None) -> list[Manifest]:
    return [
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and (name is None or manifest["metadata"]["name"] == name)
    ]


def only(manifests: Sequence[Manifest], kind: str, name: str | None = None) -> Manifest:
    (found,) = of_kind(manifests, kind, name)
    return found


def pod_specs(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Of everything that runs: workloads, jobs, tests, and the sidecar's snippet as a pod."""
    found = []
    for manifest in manifests:
        if manifest["kind"] == "Pod":
            found.append(manifest["spec"])
        elif manifest["kind"] in (*WORKLOADS, "Job"):
            found.append(_with_claims(manifest["spec"]))
        elif "sidecar.yaml" in manifest.get("data", {}):
            found.append(yaml.safe_load(manifest["data"]["sidecar.yaml"])["spec"])
    return found


def _with_claims(spec: Manifest) -> Manifest:
    """A pod as its controller makes it: a StatefulSet adds a volume for each of its templates of claims."""
    pod: Manifest = spec["template"]["spec"]
    names = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}} for name in names]
    return {**pod, "volumes": [*pod["volumes"], *claims]} if claims else pod


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", []), *pod["containers"]]


# Judging


def versions() -> tuple[str, ...]:
    """The oldest three and the newest three that there are schemas for."""
    every = sorted(set(schemas.all_versions()), key=lambda version: [int(part) for part in version.split(".")])
    return (*every[:3], *every[-3:])


@functools.cache
def _definitions(version: str) -> "Registry[Any]":
    name = f"kubernetes-json-schema/v{version}-local-strict/_definitions.json"
    contents = json.loads(importlib.resources.files("kubernetes_validate").joinpath(name).read_text())
    resource: Resource[Any] = Resource.from_contents(contents, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource("_definitions.json", resource).crawl()
    return registry


@functools.cache
def _validator(version: str, kind: str, api_version: str) -> Draft202012Validator | None:
    """None where that Kubernetes knows no such thing."""
    api = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    name = f"kubernetes-json-schema/v{version}-local-strict/{kind.lower()}-{api}.json"
    found = importlib.resources.files("kubernetes_validate").joinpath(name)
    if not found.is_file():
        return None
    return Draft202012Validator(json.loads(found.read_text()), registry=_definitions(version))


@functools.cache
def _problems(text: str, version: str) -> tuple[str, ...]:
    manifest = json.loads(text)
    what = f"{manifest['kind']} {manifest['metadata']['name']}"
    validator = _validator(version, manifest["kind"], manifest["apiVersion"])
    if validator is None:
        return (f"{what}: Kubernetes {version} has no {manifest['apiVersion']} {manifest['kind']}",)
    return tuple(
        f"{what}: Kubernetes {version}: {error.json_path}: {error.message[:300]}"
        for error in validator.iter_errors(manifest)
    )


def problems(manifest: Manifest, version: str) -> tuple[str, ...]:
    """What that version of Kubernetes would refuse, unknown fields included."""
    return _problems(json.dumps(manifest, sort_keys=True), version)
