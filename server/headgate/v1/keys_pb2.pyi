from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Entry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("domain", "entries")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    domain: str
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, domain: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: Key
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ...) -> None: ...

class KeyState(_message.Message):
    __slots__ = ("key", "rule", "limit_key", "limit", "rule_limit", "override", "time_ms", "shard", "used", "remaining", "frees_in_ms", "previous_weight_millionths", "node", "region", "region_error", "blocked")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RULE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    FREES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_WEIGHT_MILLIONTHS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    REGION_ERROR_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    key: Key
    rule: str
    limit_key: bytes
    limit: Limit
    rule_limit: Limit
    override: Override
    time_ms: int
    shard: int
    used: int
    remaining: int
    frees_in_ms: int
    previous_weight_millionths: int
    node: NodeView
    region: RegionView
    region_error: str
    blocked: str
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., rule: _Optional[str] = ..., limit_key: _Optional[bytes] = ..., limit: _Optional[_Union[Limit, _Mapping]] = ..., rule_limit: _Optional[_Union[Limit, _Mapping]] = ..., override: _Optional[_Union[Override, _Mapping]] = ..., time_ms: _Optional[int] = ..., shard: _Optional[int] = ..., used: _Optional[int] = ..., remaining: _Optional[int] = ..., frees_in_ms: _Optional[int] = ..., previous_weight_millionths: _Optional[int] = ..., node: _Optional[_Union[NodeView, _Mapping]] = ..., region: _Optional[_Union[RegionView, _Mapping]] = ..., region_error: _Optional[str] = ..., blocked: _Optional[str] = ...) -> None: ...

class Limit(_message.Message):
    __slots__ = ("requests_per_unit", "window_ms", "algorithm", "burst", "precision", "scope")
    REQUESTS_PER_UNIT_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    requests_per_unit: int
    window_ms: int
    algorithm: str
    burst: int
    precision: int
    scope: str
    def __init__(self, requests_per_unit: _Optional[int] = ..., window_ms: _Optional[int] = ..., algorithm: _Optional[str] = ..., burst: _Optional[int] = ..., precision: _Optional[int] = ..., scope: _Optional[str] = ...) -> None: ...

class CellCounts(_message.Message):
    __slots__ = ("own", "others", "foreign", "refunded")
    OWN_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    REFUNDED_FIELD_NUMBER: _ClassVar[int]
    own: int
    others: int
    foreign: int
    refunded: int
    def __init__(self, own: _Optional[int] = ..., others: _Optional[int] = ..., foreign: _Optional[int] = ..., refunded: _Optional[int] = ...) -> None: ...

class NodeView(_message.Message):
    __slots__ = ("node", "known", "current", "previous", "grant", "usable_for_ms", "unacknowledged", "credit", "denies_for_ms", "arrival_ms", "demanded_back")
    NODE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    USABLE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    DENIES_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_MS_FIELD_NUMBER: _ClassVar[int]
    DEMANDED_BACK_FIELD_NUMBER: _ClassVar[int]
    node: str
    known: bool
    current: CellCounts
    previous: CellCounts
    grant: int
    usable_for_ms: int
    unacknowledged: int
    credit: int
    denies_for_ms: int
    arrival_ms: int
    demanded_back: int
    def __init__(self, node: _Optional[str] = ..., known: bool = ..., current: _Optional[_Union[CellCounts, _Mapping]] = ..., previous: _Optional[_Union[CellCounts, _Mapping]] = ..., grant: _Optional[int] = ..., usable_for_ms: _Optional[int] = ..., unacknowledged: _Optional[int] = ..., credit: _Optional[int] = ..., denies_for_ms: _Optional[int] = ..., arrival_ms: _Optional[int] = ..., demanded_back: _Optional[int] = ...) -> None: ...

class RegionView(_message.Message):
    __slots__ = ("current_total", "previous_total", "current_unattributed", "previous_unattributed", "current_foreign", "previous_foreign", "runs", "regions", "hidden", "arrival_ms", "current_refunded", "previous_refunded", "current_foreign_refunded", "previous_foreign_refunded")
    CURRENT_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    CURRENT_UNATTRIBUTED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_UNATTRIBUTED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FOREIGN_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FOREIGN_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_MS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_REFUNDED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_REFUNDED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FOREIGN_REFUNDED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FOREIGN_REFUNDED_FIELD_NUMBER: _ClassVar[int]
    current_total: int
    previous_total: int
    current_unattributed: int
    previous_unattributed: int
    current_foreign: int
    previous_foreign: int
    runs: _containers.RepeatedCompositeFieldContainer[RunView]
    regions: _containers.RepeatedCompositeFieldContainer[ForeignView]
    hidden: int
    arrival_ms: int
    current_refunded: int
    previous_refunded: int
    current_foreign_refunded: int
    previous_foreign_refunded: int
    def __init__(self, current_total: _Optional[int] = ..., previous_total: _Optional[int] = ..., current_unattributed: _Optional[int] = ..., previous_unattributed: _Optional[int] = ..., current_foreign: _Optional[int] = ..., previous_foreign: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[RunView, _Mapping]]] = ..., regions: _Optional[_Iterable[_Union[ForeignView, _Mapping]]] = ..., hidden: _Optional[int] = ..., arrival_ms: _Optional[int] = ..., current_refunded: _Optional[int] = ..., previous_refunded: _Optional[int] = ..., current_foreign_refunded: _Optional[int] = ..., previous_foreign_refunded: _Optional[int] = ...) -> None: ...

class RunView(_message.Message):
    __slots__ = ("run", "current", "previous", "grant")
    RUN_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    run: str
    current: int
    previous: int
    grant: int
    def __init__(self, run: _Optional[str] = ..., current: _Optional[int] = ..., previous: _Optional[int] = ..., grant: _Optional[int] = ...) -> None: ...

class ForeignView(_message.Message):
    __slots__ = ("region", "current", "previous", "next")
    REGION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    region: str
    current: int
    previous: int
    next: int
    def __init__(self, region: _Optional[str] = ..., current: _Optional[int] = ..., previous: _Optional[int] = ..., next: _Optional[int] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("key", "why")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    key: Key
    why: str
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., why: _Optional[str] = ...) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class SetOverrideRequest(_message.Message):
    __slots__ = ("key", "limit", "factor_millionths", "until_ms", "for_ms", "why")
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FACTOR_MILLIONTHS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    key: Key
    limit: int
    factor_millionths: int
    until_ms: int
    for_ms: int
    why: str
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., limit: _Optional[int] = ..., factor_millionths: _Optional[int] = ..., until_ms: _Optional[int] = ..., for_ms: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class Override(_message.Message):
    __slots__ = ("key", "limit", "factor_millionths", "until_ms", "who", "why", "made_ms", "applies", "limit_in_force")
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FACTOR_MILLIONTHS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    MADE_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_IN_FORCE_FIELD_NUMBER: _ClassVar[int]
    key: Key
    limit: int
    factor_millionths: int
    until_ms: int
    who: str
    why: str
    made_ms: int
    applies: bool
    limit_in_force: Limit
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., limit: _Optional[int] = ..., factor_millionths: _Optional[int] = ..., until_ms: _Optional[int] = ..., who: _Optional[str] = ..., why: _Optional[str] = ..., made_ms: _Optional[int] = ..., applies: bool = ..., limit_in_force: _Optional[_Union[Limit, _Mapping]] = ...) -> None: ...

class RemoveOverrideRequest(_message.Message):
    __slots__ = ("key", "why")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    key: Key
    why: str
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., why: _Optional[str] = ...) -> None: ...

class RemoveOverrideResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: bool = ...) -> None: ...

class ListOverridesRequest(_message.Message):
    __slots__ = ("domain",)
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    domain: str
    def __init__(self, domain: _Optional[str] = ...) -> None: ...

class ListOverridesResponse(_message.Message):
    __slots__ = ("overrides", "most")
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    overrides: _containers.RepeatedCompositeFieldContainer[Override]
    most: int
    def __init__(self, overrides: _Optional[_Iterable[_Union[Override, _Mapping]]] = ..., most: _Optional[int] = ...) -> None: ...
