from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2 as _rls_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReserveRequest(_message.Message):
    __slots__ = ("request", "ttl_ms")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    request: _rls_pb2.RateLimitRequest
    ttl_ms: int
    def __init__(self, request: _Optional[_Union[_rls_pb2.RateLimitRequest, _Mapping]] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("decision", "id")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    decision: _rls_pb2.RateLimitResponse
    id: str
    def __init__(self, decision: _Optional[_Union[_rls_pb2.RateLimitResponse, _Mapping]] = ..., id: _Optional[str] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("id", "actual")
    ID_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_FIELD_NUMBER: _ClassVar[int]
    id: str
    actual: int
    def __init__(self, id: _Optional[str] = ..., actual: _Optional[int] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("settled", "actual")
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_FIELD_NUMBER: _ClassVar[int]
    settled: bool
    actual: int
    def __init__(self, settled: bool = ..., actual: _Optional[int] = ...) -> None: ...
