from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SetLogLevelRequest(_message.Message):
    __slots__ = ("level", "for_ms")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    level: str
    for_ms: int
    def __init__(self, level: _Optional[str] = ..., for_ms: _Optional[int] = ...) -> None: ...

class SetLogLevelResponse(_message.Message):
    __slots__ = ("node", "level", "before")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    node: str
    level: str
    before: str
    def __init__(self, node: _Optional[str] = ..., level: _Optional[str] = ..., before: _Optional[str] = ...) -> None: ...
