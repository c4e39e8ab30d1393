"""Describes and exchanges our messages and the official ones; run by test_protos.py.

    PYTHONPATH=.venv/xds:client:server python protos_official.py ours|official|exchange|xds|xds_official

`ours` and `official` print every field, enum value and method of the messages that we
have, by official name; `exchange` loads both at once and passes messages between them. `xds` and
`xds_official` do what the first two do for the messages of an xDS stream.
"""

import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor

OURS_MODULES = "headgate_client.wire."
OURS_PACKAGE = "headgate.wire."
MODULES = (
    "envoy.service.ratelimit.v3.rls_pb2",
    "envoy.extensions.common.ratelimit.v3.ratelimit_pb2",
    "envoy.type.v3.ratelimit_unit_pb2",
    "envoy.config.core.v3.base_pb2",
)
XDS_MODULES = ("discovery_pb2", "node_pb2", "status_pb2")
"""Ours, below headgate.xds.wire."""
XDS_OFFICIAL_MODULES = (
    "envoy.service.discovery.v3.discovery_pb2",
    "envoy.config.core.v3.base_pb2",
    "google.rpc.status_pb2",
)
TYPES = {
    value: name.removeprefix("TYPE_").lower() for name, value in vars(FieldDescriptor).items() if name[:5] == "TYPE_"
}
"""Names of protobuf's field types, as in a .proto file."""


def _modules(prefix: str) -> list[Any]:
    return [importlib.import_module(prefix + name) for name in MODULES]


def _name(descriptor: Any) -> str:
    return str(descriptor.full_name).removeprefix(OURS_PACKAGE)


def _label(field: FieldDescriptor) -> str:
    return "many" if field.is_repeated else "one"


def _type(field: FieldDescriptor) -> str:
    target = field.message_type or field.enum_type
    return _name(target) if target else TYPES[field.type]


def _of_enum(enum: EnumDescriptor) -> Iterator[tuple[str, Any]]:
    for value in enum.values:
        yield f"{_name(enum)}.{value.name}", value.number


def _of_message(message: Descriptor) -> Iterator[tuple[str, Any]]:
    for field in message.fields:
        yield _name(field), [field.number, _type(field), _label(field)]
    for enum in message.enum_types:
        yield from _of_enum(enum)
    for nested in message.nested_types:
        yield from _of_message(nested)


def _of_service(service: ServiceDescriptor) -> Iterator[tuple[str, Any]]:
    for method in service.methods:
        streams = [method.client_streaming, method.server_streaming]
        yield _name(method), [_name(method.input_type), _name(method.output_type), streams]


def _of_file(file: FileDescriptor) -> Iterator[tuple[str, Any]]:
    for message in file.message_types_by_name.values():
        yield from _of_message(message)
    for enum in file.enum_types_by_name.values():
        yield from _of_enum(enum)
    for service in file.services_by_name.values():
        yield from _of_service(service)


def describe(files: Iterable[FileDescriptor]) -> dict[str, Any]:
    return {name: what for file in files for name, what in _of_file(file)}


def describe_ours() -> dict[str, Any]:
    return describe(module.DESCRIPTOR for module in _modules(OURS_MODULES))


def describe_official() -> dict[str, Any]:
    """Of the official messages, those that we have: Envoy's base.proto holds dozens more."""
    top_level = {_name(message) for module in _modules(OURS_MODULES) for message in _top_level(module)}
    described = describe(module.DESCRIPTOR for module in _modules(""))
    return {name: what for name, what in described.items() if any(name.startswith(f"{top}.") for top in top_level)}


def describe_xds() -> dict[str, Any]:
    return describe(importlib.import_module(f"headgate.xds.wire.{name}").DESCRIPTOR for name in XDS_MODULES)


def describe_xds_official() -> dict[str, Any]:
    return describe(importlib.import_module(name).DESCRIPTOR for name in XDS_OFFICIAL_MODULES)


def _top_level(module: Any) -> list[Any]:
    file = module.DESCRIPTOR
    kinds = (file.message_types_by_name, file.enum_types_by_name, file.services_by_name)
    return [descriptor for kind in kinds for descriptor in kind.values()]


def _fill(message: Any, like: Descriptor) -> Any:
    """Set every field that `like` has, to a value that its number decides."""
    for field in like.fields:
        if field.name in NOT_FILLED:
            continue
        value = getattr(message, field.name)
        if field.message_type:
            _fill(value.add() if field.is_repeated else value, field.message_type)
        else:
            setattr(message, field.name, _scalar(field))
    return message


def _scalar(field: FieldDescriptor) -> Any:
    samples: dict[str, Any] = {"string": f"text {field.number}", "bytes": b"\x00\xff", "bool": True, "enum": 1}
    return samples.get(TYPES[field.type], field.number)


# Unknown to the official messages so far; and the map in Struct, which is not ours.
NOT_FILLED = {"is_negative_hits", "fields"}


def exchange() -> dict[str, bool]:
    (ours, *_), (official, *_) = _modules(OURS_MODULES), _modules("")
    return {
        "request": _there_and_back(ours.RateLimitRequest, official.RateLimitRequest),
        "response": _there_and_back(ours.RateLimitResponse, official.RateLimitResponse),
    }


def _there_and_back(ours: Any, official: Any) -> bool:
    first = _fill(ours(), ours.DESCRIPTOR)
    second = official.FromString(first.SerializeToString(deterministic=True))
    # Equal to what the official class itself makes of the same values, and nothing was left unread.
    same_values = second == _fill(official(), ours.DESCRIPTOR)
    third = ours.FromString(second.SerializeToString(deterministic=True))
    return bool(first.ByteSize() > 30 and same_values and third == first)


if __name__ == "__main__":
    commands = {
        "ours": describe_ours,
        "official": describe_official,
        "exchange": exchange,
        "xds": describe_xds,
        "xds_official": describe_xds_official,
    }
    json.dump(commands[sys.argv[1]](), sys.stdout)
