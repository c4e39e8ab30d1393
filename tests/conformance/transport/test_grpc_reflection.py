"""Reflection tells a caller who knows nothing enough to call ShouldRateLimit."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from headgate.transport.reflection import MAX_STREAMS
from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2

from tests.conformance.transport.harness import TIMEOUT_S, Server, call, status_of_call

V1 = "grpc.reflection.v1.ServerReflection"
V1ALPHA = "grpc.reflection.v1alpha.ServerReflection"
RATE_LIMIT = "envoy.service.ratelimit.v3.RateLimitService"
LIMITS = "headgate.v1.Limits"


@pytest.fixture(params=[V1, V1ALPHA])
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def _opener(channel: grpc.aio.Channel, version: str) -> "grpc.aio.StreamStreamMultiCallable[bytes, bytes]":
    return channel.stream_stream(f"/{version}/ServerReflectionInfo")


async def _ask(
    channel: grpc.aio.Channel, version: str, *requests: reflection_pb2.ServerReflectionRequest
) -> list[reflection_pb2.ServerReflectionResponse]:
    """Several questions on one stream."""

    async def sent() -> AsyncIterator[bytes]:
        for request in requests:
            yield request.SerializeToString()

    stream = _opener(channel, version)(sent(), timeout=TIMEOUT_S)
    return [reflection_pb2.ServerReflectionResponse.FromString(answer) async for answer in stream]


def _about(**question: str) -> reflection_pb2.ServerReflectionRequest:
    return reflection_pb2.ServerReflectionRequest(**question)  # type: ignore[arg-type]


async def test_services_are_listed_by_their_official_names(
    server: Server, channel: grpc.aio.Channel, version: str
) -> None:
    [answer] = await _ask(channel, version, _about(list_services=""))
    names = [service.name for service in answer.list_services_response.service]
    assert names == sorted([RATE_LIMIT, LIMITS, "grpc.health.v1.Health", V1, V1ALPHA])


async def test_every_listed_service_is_described(server: Server, channel: grpc.aio.Channel, version: str) -> None:
    services = (RATE_LIMIT, LIMITS, "grpc.health.v1.Health", V1, V1ALPHA)
    questions = [_about(file_containing_symbol=name) for name in services]
    for question, answer in zip(questions, await _ask(channel, version, *questions), strict=True):
        pool = _pool(answer)
        assert pool.FindServiceByName(question.file_containing_symbol).methods
        assert answer.original_request == question


@pytest.mark.parametrize(
    "path",
    [
        "envoy/service/ratelimit/v3/rls.proto",
        "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
        "envoy/type/v3/ratelimit_unit.proto",
        "envoy/config/core/v3/base.proto",
        "grpc/health/v1/health.proto",
        "grpc/reflection/v1/reflection.proto",
        "grpc/reflection/v1alpha/reflection.proto",
        "google/protobuf/wrappers.proto",
    ],
)
async def test_files_have_their_official_names(server: Server, channel: grpc.aio.Channel, path: str) -> None:
    [answer] = await _ask(channel, V1, _about(file_by_filename=path))
    assert _pool(answer).FindFileByName(path).name == path


async def test_no_private_name_is_shown(server: Server, channel: grpc.aio.Channel) -> None:
    [answer] = await _ask(channel, V1, _about(file_containing_symbol=RATE_LIMIT))
    assert b"headgate" not in answer.SerializeToString()


async def test_a_call_can_be_built_from_reflection_alone(
    server: Server, channel: grpc.aio.Channel, version: str
) -> None:
    [answer] = await _ask(channel, version, _about(file_containing_symbol=f"{RATE_LIMIT}.ShouldRateLimit"))
    method = _pool(answer).FindServiceByName(RATE_LIMIT).methods_by_name["ShouldRateLimit"]
    request_class = message_factory.GetMessageClass(method.input_type)
    response_class = message_factory.GetMessageClass(method.output_type)
    server.script.reply = rls_pb2.RateLimitResponse(
        overall_code=rls_pb2.RateLimitResponse.OVER_LIMIT
    ).SerializeToString()

    request = request_class(domain="edge", hits_addend=3)
    request.descriptors.add().entries.add(key="user", value="alice")  # type: ignore[attr-defined]
    path = f"/{method.containing_service.full_name}/{method.name}"
    response = response_class.FromString(await call(channel, request.SerializeToString(), method=path))

    assert response.overall_code == 2  # type: ignore[attr-defined]
    seen = rls_pb2.RateLimitRequest.FromString(server.script.payloads[0])
    assert seen == rls_pb2.RateLimitRequest(
        domain="edge", hits_addend=3, descriptors=[{"entries": [{"key": "user", "value": "alice"}]}]
    )


async def test_what_is_not_there_is_not_found(server: Server, channel: grpc.aio.Channel, version: str) -> None:
    extension = reflection_pb2.ExtensionRequest(containing_type="grpc.health.v1.HealthCheckRequest", extension_number=1)
    answers = await _ask(
        channel,
        version,
        _about(file_by_filename="headgate_client/wire/envoy/service/ratelimit/v3/rls.proto"),
        _about(file_containing_symbol="no.such.Thing"),
        _about(all_extension_numbers_of_type="no.such.Thing"),
        reflection_pb2.ServerReflectionRequest(file_containing_extension=extension),
    )
    assert [answer.error_response.error_code for answer in answers] == [5] * 4


async def test_extensions_and_empty_questions(server: Server, channel: grpc.aio.Channel) -> None:
    name = "grpc.health.v1.HealthCheckRequest"
    numbers, empty = await _ask(channel, V1, _about(all_extension_numbers_of_type=name), _about(host="x"))
    assert numbers.all_extension_numbers_response.base_type_name == name
    assert list(numbers.all_extension_numbers_response.extension_number) == []
    assert empty.error_response.error_code == 3


async def test_malformed_questions_are_invalid(server: Server, channel: grpc.aio.Channel) -> None:
    stream = _opener(channel, V1)(timeout=TIMEOUT_S)
    await stream.write(b"\xff\xff")
    code, _ = await status_of_call(stream.read())
    assert code == grpc.StatusCode.INVALID_ARGUMENT


async def test_number_of_streams_is_bounded(server: Server, channel: grpc.aio.Channel) -> None:
    question = _about(list_services="").SerializeToString()
    open_stream = _opener(channel, V1)
    streams = [open_stream(timeout=TIMEOUT_S) for _ in range(MAX_STREAMS)]
    for stream in streams:
        await stream.write(question)
        assert await stream.read()
    one_more = open_stream(timeout=TIMEOUT_S)
    assert (await status_of_call(one_more.read()))[0] == grpc.StatusCode.UNAVAILABLE
    # Decisions don't mind, and a place that is left is free again.
    assert await call(channel, b"x") == b"echo:x"
    await asyncio.gather(*(stream.done_writing() for stream in streams))
    assert await _ask(channel, V1, _about(list_services=""))


def _pool(answer: reflection_pb2.ServerReflectionResponse) -> DescriptorPool:
    """What a client builds from one answer: the file and everything that it imports."""
    pool = DescriptorPool()
    found = [
        descriptor_pb2.FileDescriptorProto.FromString(each)
        for each in answer.file_descriptor_response.file_descriptor_proto
    ]
    files = {proto.name: proto for proto in found}
    added: set[str] = set()

    def add(name: str) -> None:
        if name not in added:
            added.add(name)
            for dependency in files[name].dependency:
                add(dependency)
            pool.Add(files[name])

    for name in files:
        add(name)
    return pool
