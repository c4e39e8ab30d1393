from headgate.v1 import blocks_pb2 as _blocks_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecordKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECORD_KIND_RULE: _ClassVar[RecordKind]
    RECORD_KIND_STAGED: _ClassVar[RecordKind]
    RECORD_KIND_SHADOW: _ClassVar[RecordKind]
RECORD_KIND_RULE: RecordKind
RECORD_KIND_STAGED: RecordKind
RECORD_KIND_SHADOW: RecordKind

class Position(_message.Message):
    __slots__ = ("plane", "index", "version")
    PLANE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    plane: str
    index: int
    version: str
    def __init__(self, plane: _Optional[str] = ..., index: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class RuleChange(_message.Message):
    __slots__ = ("domain", "path", "rule", "kind")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    domain: str
    path: _containers.RepeatedCompositeFieldContainer[Step]
    rule: bytes
    kind: RecordKind
    def __init__(self, domain: _Optional[str] = ..., path: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., rule: _Optional[bytes] = ..., kind: _Optional[_Union[RecordKind, str]] = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("position", "predecessor", "changes", "who", "why", "made_ms", "carries_on")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PREDECESSOR_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    MADE_MS_FIELD_NUMBER: _ClassVar[int]
    CARRIES_ON_FIELD_NUMBER: _ClassVar[int]
    position: Position
    predecessor: str
    changes: _containers.RepeatedCompositeFieldContainer[RuleChange]
    who: str
    why: str
    made_ms: int
    carries_on: int
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., predecessor: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[RuleChange, _Mapping]]] = ..., who: _Optional[str] = ..., why: _Optional[str] = ..., made_ms: _Optional[int] = ..., carries_on: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("hello", "report")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    report: Report
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("name", "region", "software", "relay", "has")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    HAS_FIELD_NUMBER: _ClassVar[int]
    name: str
    region: str
    software: str
    relay: bool
    has: Position
    def __init__(self, name: _Optional[str] = ..., region: _Optional[str] = ..., software: _Optional[str] = ..., relay: bool = ..., has: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("followers",)
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    followers: _containers.RepeatedCompositeFieldContainer[Follower]
    def __init__(self, followers: _Optional[_Iterable[_Union[Follower, _Mapping]]] = ...) -> None: ...

class Follower(_message.Message):
    __slots__ = ("name", "region", "software", "relay", "has", "since_ms", "refused", "rollouts", "age_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    HAS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    region: str
    software: str
    relay: bool
    has: Position
    since_ms: int
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    rollouts: _containers.RepeatedCompositeFieldContainer[RolloutCounts]
    age_ms: int
    def __init__(self, name: _Optional[str] = ..., region: _Optional[str] = ..., software: _Optional[str] = ..., relay: bool = ..., has: _Optional[_Union[Position, _Mapping]] = ..., since_ms: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., rollouts: _Optional[_Iterable[_Union[RolloutCounts, _Mapping]]] = ..., age_ms: _Optional[int] = ...) -> None: ...

class RolloutCounts(_message.Message):
    __slots__ = ("domain", "rollout", "staged_decided", "staged_denied", "base_decided", "base_denied")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    STAGED_DECIDED_FIELD_NUMBER: _ClassVar[int]
    STAGED_DENIED_FIELD_NUMBER: _ClassVar[int]
    BASE_DECIDED_FIELD_NUMBER: _ClassVar[int]
    BASE_DENIED_FIELD_NUMBER: _ClassVar[int]
    domain: str
    rollout: str
    staged_decided: int
    staged_denied: int
    base_decided: int
    base_denied: int
    def __init__(self, domain: _Optional[str] = ..., rollout: _Optional[str] = ..., staged_decided: _Optional[int] = ..., staged_denied: _Optional[int] = ..., base_decided: _Optional[int] = ..., base_denied: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("domain", "reason")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    domain: str
    reason: str
    def __init__(self, domain: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("entry", "part", "beat")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    entry: LogEntry
    part: RulesPart
    beat: Beat
    def __init__(self, entry: _Optional[_Union[LogEntry, _Mapping]] = ..., part: _Optional[_Union[RulesPart, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("head", "age_ms")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    head: Position
    age_ms: int
    def __init__(self, head: _Optional[_Union[Position, _Mapping]] = ..., age_ms: _Optional[int] = ...) -> None: ...

class RulesPart(_message.Message):
    __slots__ = ("position", "number", "rules", "last")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    position: Position
    number: int
    rules: _containers.RepeatedCompositeFieldContainer[RuleChange]
    last: bool
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., number: _Optional[int] = ..., rules: _Optional[_Iterable[_Union[RuleChange, _Mapping]]] = ..., last: bool = ...) -> None: ...

class ChangeRequest(_message.Message):
    __slots__ = ("changes", "why", "expect", "now", "expect_denials")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    EXPECT_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    EXPECT_DENIALS_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[RuleChange]
    why: str
    expect: str
    now: bool
    expect_denials: int
    def __init__(self, changes: _Optional[_Iterable[_Union[RuleChange, _Mapping]]] = ..., why: _Optional[str] = ..., expect: _Optional[str] = ..., now: bool = ..., expect_denials: _Optional[int] = ...) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ("version", "why", "expect")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    EXPECT_FIELD_NUMBER: _ClassVar[int]
    version: str
    why: str
    expect: str
    def __init__(self, version: _Optional[str] = ..., why: _Optional[str] = ..., expect: _Optional[str] = ...) -> None: ...

class HaltRequest(_message.Message):
    __slots__ = ("domain", "resume", "why")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    domain: str
    resume: bool
    why: str
    def __init__(self, domain: _Optional[str] = ..., resume: bool = ..., why: _Optional[str] = ...) -> None: ...

class ShadowRequest(_message.Message):
    __slots__ = ("domain", "path", "for_ms", "why")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    domain: str
    path: _containers.RepeatedCompositeFieldContainer[Step]
    for_ms: int
    why: str
    def __init__(self, domain: _Optional[str] = ..., path: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., for_ms: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class ChangeResponse(_message.Message):
    __slots__ = ("position", "changed", "problems", "rollouts", "reach")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    position: Position
    changed: int
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    reach: _blocks_pb2.Reach
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., changed: _Optional[int] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ..., reach: _Optional[_Union[_blocks_pb2.Reach, _Mapping]] = ...) -> None: ...

class Rollout(_message.Message):
    __slots__ = ("domain", "name", "share", "stages", "stage_ms", "expect_denials", "who", "why", "began_ms", "stage_began_ms", "halted", "changes", "counts", "waits_for")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    STAGE_MS_FIELD_NUMBER: _ClassVar[int]
    EXPECT_DENIALS_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    STAGE_BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    HALTED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    domain: str
    name: str
    share: int
    stages: _containers.RepeatedScalarFieldContainer[int]
    stage_ms: int
    expect_denials: int
    who: str
    why: str
    began_ms: int
    stage_began_ms: int
    halted: bool
    changes: int
    counts: RolloutCounts
    waits_for: str
    def __init__(self, domain: _Optional[str] = ..., name: _Optional[str] = ..., share: _Optional[int] = ..., stages: _Optional[_Iterable[int]] = ..., stage_ms: _Optional[int] = ..., expect_denials: _Optional[int] = ..., who: _Optional[str] = ..., why: _Optional[str] = ..., began_ms: _Optional[int] = ..., stage_began_ms: _Optional[int] = ..., halted: bool = ..., changes: _Optional[int] = ..., counts: _Optional[_Union[RolloutCounts, _Mapping]] = ..., waits_for: _Optional[str] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("domain", "path", "reason")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    domain: str
    path: _containers.RepeatedCompositeFieldContainer[Step]
    reason: str
    def __init__(self, domain: _Optional[str] = ..., path: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("before", "most", "domain", "with_changes")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    WITH_CHANGES_FIELD_NUMBER: _ClassVar[int]
    before: int
    most: int
    domain: str
    with_changes: bool
    def __init__(self, before: _Optional[int] = ..., most: _Optional[int] = ..., domain: _Optional[str] = ..., with_changes: bool = ...) -> None: ...

class HistoryResponse(_message.Message):
    __slots__ = ("entries", "first")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[LogEntry]
    first: int
    def __init__(self, entries: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ..., first: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("head", "head_made_ms", "rules", "domains", "upstream", "fresh_ms", "followers", "now_ms", "rollouts", "shadows", "named")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    HEAD_MADE_MS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_FIELD_NUMBER: _ClassVar[int]
    FRESH_MS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    SHADOWS_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    head: Position
    head_made_ms: int
    rules: int
    domains: int
    upstream: str
    fresh_ms: int
    followers: _containers.RepeatedCompositeFieldContainer[Follower]
    now_ms: int
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    shadows: _containers.RepeatedCompositeFieldContainer[Shadow]
    named: _containers.RepeatedCompositeFieldContainer[DomainVersion]
    def __init__(self, head: _Optional[_Union[Position, _Mapping]] = ..., head_made_ms: _Optional[int] = ..., rules: _Optional[int] = ..., domains: _Optional[int] = ..., upstream: _Optional[str] = ..., fresh_ms: _Optional[int] = ..., followers: _Optional[_Iterable[_Union[Follower, _Mapping]]] = ..., now_ms: _Optional[int] = ..., rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ..., shadows: _Optional[_Iterable[_Union[Shadow, _Mapping]]] = ..., named: _Optional[_Iterable[_Union[DomainVersion, _Mapping]]] = ...) -> None: ...

class DomainVersion(_message.Message):
    __slots__ = ("domain", "version")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    domain: str
    version: str
    def __init__(self, domain: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Shadow(_message.Message):
    __slots__ = ("domain", "path", "until_ms", "who", "why")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    domain: str
    path: _containers.RepeatedCompositeFieldContainer[Step]
    until_ms: int
    who: str
    why: str
    def __init__(self, domain: _Optional[str] = ..., path: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., until_ms: _Optional[int] = ..., who: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("domains",)
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    domains: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, domains: _Optional[_Iterable[str]] = ...) -> None: ...
