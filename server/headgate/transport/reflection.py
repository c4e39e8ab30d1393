"""Server reflection, v1 and v1alpha, under the official names of Envoy's messages.

Our generated messages live in a private package so that anybody's copy of the official
ones can share the process. Callers know only the official names: these descriptors are
ours with the private prefixes taken off, in a pool of their own.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
from google.protobuf import duration_pb2, struct_pb2, text_format, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from headgate_client.wire.envoy.config.core.v3 import base_pb2
from headgate_client.wire.envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2
from headgate_client.wire.envoy.type.v3 import ratelimit_unit_pb2
from headgate_client.wire.headgate.v1 import limits_pb2

from headgate.endpoint.methods import CODES, MethodHandlers
from headgate.errors import RequestError, Status
from headgate.transport import health
from headgate.transport.callers import EVERYBODY, Callers
from headgate.transport.interface import RATE_LIMIT_SERVICE

V1_SERVICE = "grpc.reflection.v1.ServerReflection"
V1ALPHA_SERVICE = "grpc.reflection.v1alpha.ServerReflection"
LIMITS_SERVICE = "headgate.v1.Limits"
SERVICES = (RATE_LIMIT_SERVICE, LIMITS_SERVICE, health.SERVICE, V1_SERVICE, V1ALPHA_SERVICE)
# People explore with it, one stream each; it must not cost the callers who want decisions.
MAX_STREAMS = 32

# Beginnings of names to be replaced: of files, and of packages. grpcio's own messages have their
# packages right, and files that are named after Python modules.
_OURS = {"headgate_client/wire/": "", "headgate.wire.": ""}
_HEALTH = {"grpc_health/": "grpc/health/"}
_V1ALPHA = {"grpc_reflection/": "grpc/reflection/"}
_V1 = {"grpc_reflection/v1alpha/": "grpc/reflection/v1/", "grpc.reflection.v1alpha": "grpc.reflection.v1"}
_File = FileDescriptor | Any  # the stubs of grpcio's messages have a class of their own


def official_files() -> list[FileDescriptorProto]:
    """Every file that describes what is served, each after the files that it imports."""
    well_known = [_renamed(module.DESCRIPTOR, {}) for module in (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)]
    ours = [
        _renamed(module.DESCRIPTOR, _OURS)
        for module in (ratelimit_unit_pb2, base_pb2, ratelimit_pb2, rls_pb2, limits_pb2)
    ]
    grpcs = [
        _renamed(health_pb2.DESCRIPTOR, _HEALTH),
        _renamed(reflection_pb2.DESCRIPTOR, _V1ALPHA),
        _renamed(reflection_pb2.DESCRIPTOR, _V1),
    ]
    return [*well_known, *ours, *grpcs]


def _renamed(file: _File, prefixes: Mapping[str, str]) -> FileDescriptorProto:
    """Copy a file's description; its own name, its package's, and those of other files and types begin otherwise."""
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    text = text_format.MessageToString(proto)
    for old, new in prefixes.items():
        # The full name of a type begins with a dot.
        text = text.replace(f'"{old}', f'"{new}').replace(f'".{old}', f'".{new}')
    return text_format.Parse(text, FileDescriptorProto())


class Reflection:
    """Answers reflection requests; both versions have the same bytes on the wire. Guarded as calls are."""

    def __init__(self, callers: Callers = EVERYBODY) -> None:
        self._callers = callers
        self._files = {file.name: file for file in official_files()}
        self._pool = DescriptorPool()
        for file in self._files.values():
            self._pool.Add(file)
        self._streams = 0

    def methods(self) -> MethodHandlers:
        """Method handlers for a grpc.aio server, by path."""
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._serve)
        return {f"/{service}/ServerReflectionInfo": handler for service in (V1_SERVICE, V1ALPHA_SERVICE)}

    async def _serve(
        self, requests: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> AsyncIterator[bytes]:
        try:
            self._callers.check_context(context)
        except RequestError as refusal:
            await context.abort(CODES[refusal.status], str(refusal))
        if self._streams >= MAX_STREAMS:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, f"overloaded: more than {MAX_STREAMS} reflection streams are open"
            )
        self._streams += 1
        try:
            async for payload in requests:
                try:
                    answer = self.answer(payload)
                except DecodeError:
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "malformed ServerReflectionRequest")
                yield answer
        finally:
            self._streams -= 1

    def answer(self, payload: bytes) -> bytes:
        """A serialized response for a serialized request; raises DecodeError."""
        request = reflection_pb2.ServerReflectionRequest.FromString(payload)
        response = reflection_pb2.ServerReflectionResponse(valid_host=request.host, original_request=request)
        try:
            self._fill(request, response)
        except KeyError:
            response.error_response.error_code = Status.NOT_FOUND
            response.error_response.error_message = "not found"
        return response.SerializeToString()

    def _fill(
        self, request: reflection_pb2.ServerReflectionRequest, response: reflection_pb2.ServerReflectionResponse
    ) -> None:
        match request.WhichOneof("message_request"):
            case "list_services":
                response.list_services_response.service.extend(
                    reflection_pb2.ServiceResponse(name=name) for name in sorted(SERVICES)
                )
            case "file_by_filename":
                self._describe(request.file_by_filename, response)
            case "file_containing_symbol":
                self._describe(self._file_of(request.file_containing_symbol), response)
            case "file_containing_extension":
                # proto3 messages, as all of ours are, have no extensions.
                raise KeyError
            case "all_extension_numbers_of_type":
                self._pool.FindMessageTypeByName(request.all_extension_numbers_of_type)
                response.all_extension_numbers_response.base_type_name = request.all_extension_numbers_of_type
            case _:
                response.error_response.error_code = Status.INVALID_ARGUMENT
                response.error_response.error_message = "no request that this server knows"

    def _file_of(self, symbol: str) -> str:
        try:
            return self._pool.FindFileContainingSymbol(symbol).name
        except KeyError:
            # The pool finds a method only as such.
            return self._pool.FindMethodByName(symbol).containing_service.file.name

    def _describe(self, name: str, response: reflection_pb2.ServerReflectionResponse) -> None:
        """The file and all that it imports, so that one answer is enough to build it."""
        found: dict[str, bytes] = {}
        names = [name]
        while names:
            file = self._files[names.pop()]
            found[file.name] = file.SerializeToString()
            names.extend(dependency for dependency in file.dependency if dependency not in found)
        response.file_descriptor_response.file_descriptor_proto.extend(found.values())
