from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromSender(_message.Message):
    __slots__ = ("hello", "batch")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    hello: SenderHello
    batch: Batch
    def __init__(self, hello: _Optional[_Union[SenderHello, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class FromReceiver(_message.Message):
    __slots__ = ("hello", "ack")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    hello: ReceiverHello
    ack: Ack
    def __init__(self, hello: _Optional[_Union[ReceiverHello, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ...) -> None: ...

class SenderHello(_message.Message):
    __slots__ = ("region", "to_region", "lowest_version", "highest_version", "regions", "software")
    REGION_FIELD_NUMBER: _ClassVar[int]
    TO_REGION_FIELD_NUMBER: _ClassVar[int]
    LOWEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    region: str
    to_region: str
    lowest_version: int
    highest_version: int
    regions: _containers.RepeatedScalarFieldContainer[str]
    software: str
    def __init__(self, region: _Optional[str] = ..., to_region: _Optional[str] = ..., lowest_version: _Optional[int] = ..., highest_version: _Optional[int] = ..., regions: _Optional[_Iterable[str]] = ..., software: _Optional[str] = ...) -> None: ...

class ReceiverHello(_message.Message):
    __slots__ = ("version", "region", "regions", "software")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    version: int
    region: str
    regions: _containers.RepeatedScalarFieldContainer[str]
    software: str
    def __init__(self, version: _Optional[int] = ..., region: _Optional[str] = ..., regions: _Optional[_Iterable[str]] = ..., software: _Optional[str] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("key", "window_ms", "sequence", "current", "previous", "reset", "current_refunded", "previous_refunded")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    CURRENT_REFUNDED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_REFUNDED_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedScalarFieldContainer[bytes]
    window_ms: _containers.RepeatedScalarFieldContainer[int]
    sequence: _containers.RepeatedScalarFieldContainer[int]
    current: _containers.RepeatedScalarFieldContainer[int]
    previous: _containers.RepeatedScalarFieldContainer[int]
    reset: _containers.RepeatedScalarFieldContainer[int]
    current_refunded: _containers.RepeatedScalarFieldContainer[int]
    previous_refunded: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[_Iterable[bytes]] = ..., window_ms: _Optional[_Iterable[int]] = ..., sequence: _Optional[_Iterable[int]] = ..., current: _Optional[_Iterable[int]] = ..., previous: _Optional[_Iterable[int]] = ..., reset: _Optional[_Iterable[int]] = ..., current_refunded: _Optional[_Iterable[int]] = ..., previous_refunded: _Optional[_Iterable[int]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("number", "time_ms", "entries", "returned", "fill_wanted", "filled", "beat_ms", "heard_beat_ms", "quota")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    FILL_WANTED_FIELD_NUMBER: _ClassVar[int]
    FILLED_FIELD_NUMBER: _ClassVar[int]
    BEAT_MS_FIELD_NUMBER: _ClassVar[int]
    HEARD_BEAT_MS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    number: int
    time_ms: int
    entries: Entries
    returned: Entries
    fill_wanted: bytes
    filled: bytes
    beat_ms: int
    heard_beat_ms: int
    quota: Quota
    def __init__(self, number: _Optional[int] = ..., time_ms: _Optional[int] = ..., entries: _Optional[_Union[Entries, _Mapping]] = ..., returned: _Optional[_Union[Entries, _Mapping]] = ..., fill_wanted: _Optional[bytes] = ..., filled: _Optional[bytes] = ..., beat_ms: _Optional[int] = ..., heard_beat_ms: _Optional[int] = ..., quota: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class QuotaMark(_message.Message):
    __slots__ = ("run", "number")
    RUN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    run: int
    number: int
    def __init__(self, run: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("tag", "mark", "echo", "stores", "filled", "answers", "whole", "changed_ago_ms", "silent_region", "silent_ms", "entries")
    TAG_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    FILLED_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AGO_MS_FIELD_NUMBER: _ClassVar[int]
    SILENT_REGION_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    tag: bytes
    mark: QuotaMark
    echo: QuotaMark
    stores: _containers.RepeatedScalarFieldContainer[int]
    filled: bool
    answers: int
    whole: bool
    changed_ago_ms: int
    silent_region: _containers.RepeatedScalarFieldContainer[int]
    silent_ms: _containers.RepeatedScalarFieldContainer[int]
    entries: _containers.RepeatedCompositeFieldContainer[QuotaEntry]
    def __init__(self, tag: _Optional[bytes] = ..., mark: _Optional[_Union[QuotaMark, _Mapping]] = ..., echo: _Optional[_Union[QuotaMark, _Mapping]] = ..., stores: _Optional[_Iterable[int]] = ..., filled: bool = ..., answers: _Optional[int] = ..., whole: bool = ..., changed_ago_ms: _Optional[int] = ..., silent_region: _Optional[_Iterable[int]] = ..., silent_ms: _Optional[_Iterable[int]] = ..., entries: _Optional[_Iterable[_Union[QuotaEntry, _Mapping]]] = ...) -> None: ...

class QuotaEntry(_message.Message):
    __slots__ = ("key", "window_ms", "need", "over", "rows")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    NEED_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    window_ms: int
    need: int
    over: int
    rows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[bytes] = ..., window_ms: _Optional[int] = ..., need: _Optional[int] = ..., over: _Optional[int] = ..., rows: _Optional[_Iterable[int]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("number", "refused", "quota")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    number: int
    refused: int
    quota: QuotaMark
    def __init__(self, number: _Optional[int] = ..., refused: _Optional[int] = ..., quota: _Optional[_Union[QuotaMark, _Mapping]] = ...) -> None: ...
