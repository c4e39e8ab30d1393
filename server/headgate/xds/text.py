"""Source text of a resource: the YAML that a rules file is, always the same for the same resource.

Reading, checking, `/rules`, explanations and the decision log see no difference between a file and a resource. What a
resource says and rules don't accept is written as it is, so that the reader names it with its line.
"""

from collections.abc import Iterator
from typing import Any

from headgate.rules.yaml_text import flow, quoted
from headgate.xds.wire.ratelimit_config_pb2 import (
    RateLimitConfig,
    RateLimitDescriptor,
    RateLimitPolicy,
    RateLimitUnit,
)

_FLAGS = ("shadow_mode", "detailed_metric", "quota_mode")


def config_text(config: RateLimitConfig) -> bytes:
    """Rules file of one resource."""
    lines = [f"domain: {quoted(config.domain)}"]
    if config.descriptors:
        lines += ["descriptors:", *_descriptors(config.descriptors, "")]
    else:
        lines.append("descriptors: []")
    return ("\n".join(lines) + "\n").encode()


def _descriptors(descriptors: Any, indent: str) -> Iterator[str]:
    for descriptor in descriptors:
        for number, line in enumerate(_descriptor(descriptor)):
            yield f"{indent}{'  ' if number else '- '}{line}"


def _descriptor(descriptor: RateLimitDescriptor) -> Iterator[str]:
    yield f"key: {quoted(descriptor.key)}"
    if descriptor.value:
        yield f"value: {quoted(descriptor.value)}"
    if descriptor.HasField("rate_limit"):
        yield "rate_limit:"
        yield from (f"  {line}" for line in _policy(descriptor.rate_limit))
    yield from (f"{name}: true" for name in _FLAGS if getattr(descriptor, name))
    if descriptor.HasField("metadata"):
        yield f"metadata: {flow(_plain(descriptor.metadata))}"
    if descriptor.descriptors:
        yield "descriptors:"
        yield from _descriptors(descriptor.descriptors, "")


def _policy(policy: RateLimitPolicy) -> Iterator[str]:
    if policy.name:
        yield f"name: {quoted(policy.name)}"
    if policy.unlimited:
        yield "unlimited: true"
    if not policy.unlimited or policy.unit:
        yield f"unit: {_unit(policy.unit)}"
    if not policy.unlimited or policy.requests_per_unit:
        yield f"requests_per_unit: {policy.requests_per_unit}"  # missing is 0: deny always
    if policy.replaces:
        yield "replaces:"
        yield from (f"- name: {quoted(replaced.name)}" for replaced in policy.replaces)


def _unit(unit: int) -> str:
    """Name of a unit; a number where this version knows no name."""
    return RateLimitUnit.Name(unit).lower() if unit in RateLimitUnit.values() else str(unit)


def _plain(struct: Any) -> dict[str, Any]:
    return {name: _plain_value(struct.fields[name]) for name in sorted(struct.fields)}


def _plain_value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _plain(value.struct_value)
    if kind == "list_value":
        return [_plain_value(item) for item in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def shown_name(name: str) -> str:
    """Name of a resource as a rules file's: on one line."""
    return "".join(character if character.isprintable() else "?" for character in name)
