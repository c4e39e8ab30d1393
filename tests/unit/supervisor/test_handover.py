"""Settings from one process to another: all of them, exactly."""

import json
from pathlib import Path
from typing import Any

import pytest
from headgate.config import SETTINGS, Settings, kinds, load_settings
from headgate.config.handover import settings_from_plain, settings_to_plain
from headgate.config.kinds import Boolean, Choice, FilePath, ListOf, Number, Text, Whole
from headgate.errors import ConfigError
from headgate.runtime.context import ServiceState
from headgate.supervisor.process import WorkerSpec, WorkerState


def other_than_default(setting: Any) -> Any:
    match setting.kind:
        case Boolean():
            return "false" if setting.default else "true"
        case Whole() | Number():
            return str(setting.kind.low if setting.default != setting.kind.low else setting.kind.high)
        case Choice():
            return next(value for value in setting.kind.values if value != setting.default)
        case kinds.ADDRESS:
            return f"unix:/run/{setting.name}"
        case kinds.ADDRESSES:
            return "root:8083,[::1]:8083"
        case kinds.HTTP_URL:
            return "https://collector:4318"
        case kinds.ORIGIN_URL:
            return "redis://:p%40ss@a:1,b:2/3"
        case kinds.STORE_URL:
            return "postgresql://plane:p%40ss@db:5432/plane"
        case kinds.SHARE:
            return "2.5%"
        case kinds.STAGES:
            return "5%,25%"
        case kinds.EQUALS_PAIRS:
            return "zone=a,rack=7"
        case kinds.HEADER_PAIRS:
            return "authorization:x y"
        case kinds.RULES_FROM:
            return "xds://envoy-gateway:18001"
        case FilePath():
            return f"dir/{setting.name}"
        case ListOf(item=kinds.NETWORK):
            return ["10.0.0.0/8", "fd00::/8"]
        case ListOf(item=kinds.HOST):
            return ["gate.example"]
        case ListOf():
            return ["us=10.0.0.1:8082", "ap=[::1]:1"]
        case Text(metavar="MODE"):
            return "0660"
        case Text():
            return f"X-{setting.name}"[:60]
    raise AssertionError(setting)


def through_json(settings: Settings) -> Settings:
    return settings_from_plain(json.loads(json.dumps(settings_to_plain(settings))))


def test_every_setting_arrives_as_it_is() -> None:
    flags = {setting.name: other_than_default(setting) for setting in SETTINGS}
    flags["transport"] = "grpcio"
    shown: set[str] = set()
    for left_out in (("peer", "promote", "plane_store"), ("peer_file", "upstream")):  # one of each pair is accepted
        settings = load_settings({name: value for name, value in flags.items() if name not in left_out}, {})
        assert through_json(settings) == settings
        shown |= {setting.name for setting in SETTINGS if getattr(settings, setting.name) != setting.default}
    assert shown == {setting.name for setting in SETTINGS}, "the test shows nothing for the others"


def test_defaults_arrive_too() -> None:
    settings = load_settings({"rules": "r"}, {})
    assert through_json(settings) == settings


def test_settings_of_another_version_are_refused_by_name() -> None:
    values = settings_to_plain(load_settings({"rules": "r"}, {}))
    del values["region"]
    with pytest.raises(ConfigError, match=r"another version of headgate \(novel, region\): restart it whole"):
        settings_from_plain({**values, "novel": 1})


def test_a_worker_gets_its_whole_order() -> None:
    settings = load_settings({"rules": "r", "http": "unix:/d/0/http"}, {})
    spec = WorkerSpec(0, True, Path("/d/0"), settings)
    assert WorkerSpec.from_message(json.loads(json.dumps(spec.to_message()))) == spec


def test_worker_and_supervisor_have_the_same_words_for_a_state() -> None:
    assert {state.value for state in ServiceState} == {state.value for state in WorkerState} - {WorkerState.ENDED}
