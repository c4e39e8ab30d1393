"""Rules that Helm gets as text (`--set-file`) are checked before anything is sent, as those that are a mapping."""

from pathlib import Path

import pytest
import yaml
from headgate.rules.schema import overlay_schema, rules_schema

from tests.support.helm import HelmError, Manifest, only, render
from tests.support.source import ROOT

GOOD = """\
domain: edge
descriptors:
  - key: path
    value: /login*
    descriptors:
      - key: user
        shadow_mode: yes
        rate_limit: {unit: MINUTE, unit_multiplier: 5, requests_per_unit: 4294967295, replaces: [{name: a}]}
  - key: plan
    value: 404
    rate_limit: {unit: day, requests_per_unit: 0, precision: 2.5}
  - key: plan
    metadata: {anything: [1, {at: all}]}
    rate_limit:
"""


def rendered(tmp_path: Path, text: str) -> list[Manifest]:
    file = tmp_path / "edge.yaml"
    file.write_text(text)
    return render(more=["--set-file", f"rules.edge\\.yaml={file}"])


def test_good_rules_arrive_as_they_are(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, GOOD)
    assert yaml.safe_load(only(manifests, "ConfigMap", "headgate-rules")["data"]["edge.yaml"]) == yaml.safe_load(GOOD)


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "rules").rglob("*.yaml")), ids=lambda path: path.name)
def test_every_example_of_rules_is_taken(tmp_path: Path, path: Path) -> None:
    assert rendered(tmp_path, path.read_text())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "rules.edge.yaml: has no descriptors"),
        ("- key: user\n", "rules.edge.yaml: is no YAML mapping"),
        ("just words\n", "rules.edge.yaml: is no YAML mapping"),
        ("domain: edge\n descriptors: []\n", "rules.edge.yaml: is no YAML mapping"),
        ("domain: edge\n", "rules.edge.yaml: has no descriptors"),
        ("descriptors: []\n", "rules.edge.yaml: has no domain"),
        ("domain: edge\ndescriptors: {key: user}\n", "rules.edge.yaml.descriptors: must be array, found"),
        ("domain: edge\ndescriptors: [user]\n", 'rules.edge.yaml.descriptors.0: must be object, found "user"'),
        ("domain: edge\ndescriptors: [{value: a}]\n", "rules.edge.yaml.descriptors.0: has no key"),
        (
            "domain: edge\ndescriptors: [{key: user, rate_limt: {}}]\n",
            "rules.edge.yaml.descriptors.0: unknown key rate_limt; accepted: descriptors, detailed_metric, key",
        ),
        (
            "domain: edge\ndescriptors: [{key: a}, {key: b, descriptors: [{key: c, rate_limit: {unit: minut}}]}]\n",
            "rules.edge.yaml.descriptors.1.descriptors.0.rate_limit.unit: must be one of second, SECOND",
        ),
        (
            "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: -5}}]\n",
            "rate_limit.requests_per_unit: must be from 0 to 4294967295, found -5",
        ),
        (
            "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 1.5}}]\n",
            "rate_limit.requests_per_unit: must be integer, found 1.5",
        ),
    ],
)
def test_wrong_rules_are_refused_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(HelmError) as refused:
        rendered(tmp_path, text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("overlay: []\n", ""),
        ("overlay: [{domain: edge, precision: 0}]\n", ""),
        ("[]", "rulesOverlay.a.yaml: is no YAML mapping"),
        ("overlays: []\n", "rulesOverlay.a.yaml: has no overlay"),
        ("overlay: [{domain: edge, precison: 0}]\n", "rulesOverlay.a.yaml.overlay.0: unknown key precison"),
    ],
)
def test_overlays_that_are_text_are_checked_alike(text: str, said: str) -> None:
    if not said:
        assert render({"rulesOverlay": {"a.yaml": text}})
        return
    with pytest.raises(HelmError) as refused:
        render({"rulesOverlay": {"a.yaml": text}})
    assert said in str(refused.value)


def keywords(schema: object) -> set[str]:
    """Words of JSON Schema that are in it; names of properties are not."""
    if isinstance(schema, list):
        return {word for item in schema for word in keywords(item)}
    if not isinstance(schema, dict):
        return set()
    inner = [item for name in ("properties", "$defs") for item in schema.get(name, {}).values()]
    return set(schema) | keywords([*inner, schema.get("items")])


def test_the_templates_know_every_word_of_the_schema() -> None:
    """A new one would be passed over: teach headgate.checkAgainst, then this."""
    known = {"type", "enum", "required", "properties", "items", "$ref", "minimum", "maximum", "additionalProperties"}
    silent = {"$schema", "$id", "$defs", "title", "description"}
    assert keywords(rules_schema()) | keywords(overlay_schema()) <= known | silent
