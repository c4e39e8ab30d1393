from headgate.v1 import keys_pb2 as _keys_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Block(_message.Message):
    __slots__ = ("domain", "entry", "until_ms", "who", "why", "made_ms")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    MADE_MS_FIELD_NUMBER: _ClassVar[int]
    domain: str
    entry: _keys_pb2.Entry
    until_ms: int
    who: str
    why: str
    made_ms: int
    def __init__(self, domain: _Optional[str] = ..., entry: _Optional[_Union[_keys_pb2.Entry, _Mapping]] = ..., until_ms: _Optional[int] = ..., who: _Optional[str] = ..., why: _Optional[str] = ..., made_ms: _Optional[int] = ...) -> None: ...

class Reach(_message.Message):
    __slots__ = ("node", "region", "stored", "reason", "live_nodes", "nodes_here")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LIVE_NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_HERE_FIELD_NUMBER: _ClassVar[int]
    node: str
    region: str
    stored: bool
    reason: str
    live_nodes: int
    nodes_here: int
    def __init__(self, node: _Optional[str] = ..., region: _Optional[str] = ..., stored: bool = ..., reason: _Optional[str] = ..., live_nodes: _Optional[int] = ..., nodes_here: _Optional[int] = ...) -> None: ...

class SetBlockRequest(_message.Message):
    __slots__ = ("domain", "entry", "until_ms", "for_ms", "why")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    domain: str
    entry: _keys_pb2.Entry
    until_ms: int
    for_ms: int
    why: str
    def __init__(self, domain: _Optional[str] = ..., entry: _Optional[_Union[_keys_pb2.Entry, _Mapping]] = ..., until_ms: _Optional[int] = ..., for_ms: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class SetBlockResponse(_message.Message):
    __slots__ = ("block", "reach")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    block: Block
    reach: Reach
    def __init__(self, block: _Optional[_Union[Block, _Mapping]] = ..., reach: _Optional[_Union[Reach, _Mapping]] = ...) -> None: ...

class RemoveBlockRequest(_message.Message):
    __slots__ = ("domain", "entry", "why")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    domain: str
    entry: _keys_pb2.Entry
    why: str
    def __init__(self, domain: _Optional[str] = ..., entry: _Optional[_Union[_keys_pb2.Entry, _Mapping]] = ..., why: _Optional[str] = ...) -> None: ...

class RemoveBlockResponse(_message.Message):
    __slots__ = ("removed", "reach")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    reach: Reach
    def __init__(self, removed: bool = ..., reach: _Optional[_Union[Reach, _Mapping]] = ...) -> None: ...

class ListBlocksRequest(_message.Message):
    __slots__ = ("domain",)
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    domain: str
    def __init__(self, domain: _Optional[str] = ...) -> None: ...

class ListBlocksResponse(_message.Message):
    __slots__ = ("blocks",)
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    def __init__(self, blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ...) -> None: ...
