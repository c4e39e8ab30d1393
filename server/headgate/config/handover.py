"""Resolved settings from one process to another of the same version, as plain JSON values.

The receiver gets what the sender has: no file, flag or variable is read a second time, so
a config file that changed in between can't make two processes of one service differ.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.config.kinds import FilePath, ListOf, Peer, RulesFrom
from headgate.config.settings import SETTINGS, Setting, Settings
from headgate.errors import ConfigError


def settings_to_plain(settings: Settings) -> dict[str, Any]:
    """All settings as values that JSON can carry."""
    return {setting.name: _plain(getattr(settings, setting.name)) for setting in SETTINGS}


def settings_from_plain(values: Mapping[str, Any]) -> Settings:
    """The settings that `settings_to_plain` was given. Raises ConfigError when its program has other settings than
    this one.
    """
    known = {setting.name for setting in SETTINGS}
    if values.keys() != known:
        names = ", ".join(sorted(values.keys() ^ known))
        raise ConfigError(f"the settings are those of another version of headgate ({names}): restart it whole")
    return Settings(**{setting.name: _restore(setting, values[setting.name]) for setting in SETTINGS})


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [dataclasses.asdict(item) if isinstance(item, Peer) else item for item in value]
    return value


def _restore(setting: Setting, value: Any) -> Any:
    if isinstance(setting.kind, ListOf):
        return tuple(Peer(**item) if isinstance(item, dict) else item for item in value)
    if isinstance(setting.kind, FilePath | RulesFrom) and value is not None:
        return setting.kind.parse(value)
    return value
