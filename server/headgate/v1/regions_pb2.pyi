from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CutRegion(_message.Message):
    __slots__ = ("region", "who", "why", "made_ms")
    REGION_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    MADE_MS_FIELD_NUMBER: _ClassVar[int]
    region: str
    who: str
    why: str
    made_ms: int
    def __init__(self, region: _Optional[str] = ..., who: _Optional[str] = ..., why: _Optional[str] = ..., made_ms: _Optional[int] = ...) -> None: ...

class CutRequest(_message.Message):
    __slots__ = ("region", "why")
    REGION_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    region: str
    why: str
    def __init__(self, region: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class CutResponse(_message.Message):
    __slots__ = ("cut", "keys")
    CUT_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    cut: CutRegion
    keys: int
    def __init__(self, cut: _Optional[_Union[CutRegion, _Mapping]] = ..., keys: _Optional[int] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("region", "why")
    REGION_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    region: str
    why: str
    def __init__(self, region: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("restored",)
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    restored: bool
    def __init__(self, restored: bool = ...) -> None: ...

class ListCutsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCutsResponse(_message.Message):
    __slots__ = ("cuts",)
    CUTS_FIELD_NUMBER: _ClassVar[int]
    cuts: _containers.RepeatedCompositeFieldContainer[CutRegion]
    def __init__(self, cuts: _Optional[_Iterable[_Union[CutRegion, _Mapping]]] = ...) -> None: ...
