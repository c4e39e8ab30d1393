from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FindRequest(_message.Message):
    __slots__ = ("who", "number", "since_ms", "until_ms")
    WHO_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    who: int
    number: int
    since_ms: int
    until_ms: int
    def __init__(self, who: _Optional[int] = ..., number: _Optional[int] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class RuleSet(_message.Message):
    __slots__ = ("digest", "merge_domains", "files")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MERGE_DOMAINS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    digest: str
    merge_domains: bool
    files: _containers.RepeatedCompositeFieldContainer[RuleFile]
    def __init__(self, digest: _Optional[str] = ..., merge_domains: bool = ..., files: _Optional[_Iterable[_Union[RuleFile, _Mapping]]] = ...) -> None: ...

class RuleFile(_message.Message):
    __slots__ = ("name", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    data: bytes
    def __init__(self, name: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class FindResponse(_message.Message):
    __slots__ = ("lines", "rules", "more", "skipped_bytes", "first_ms", "last_ms")
    LINES_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    rules: _containers.RepeatedCompositeFieldContainer[RuleSet]
    more: bool
    skipped_bytes: int
    first_ms: int
    last_ms: int
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., rules: _Optional[_Iterable[_Union[RuleSet, _Mapping]]] = ..., more: bool = ..., skipped_bytes: _Optional[int] = ..., first_ms: _Optional[int] = ..., last_ms: _Optional[int] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("cursor", "wait_ms")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    wait_ms: int
    def __init__(self, cursor: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("cursor", "lines", "missed")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    lines: _containers.RepeatedScalarFieldContainer[str]
    missed: int
    def __init__(self, cursor: _Optional[int] = ..., lines: _Optional[_Iterable[str]] = ..., missed: _Optional[int] = ...) -> None: ...
