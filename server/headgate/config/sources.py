"""Reading of flags, environment and file to `Settings`: flag over environment over file over default.

Everything comes in as arguments and goes out as a value or a `SettingsError`: no
reading of the process's environment, no logging, no exit. All problems of all
sources are found in one pass, so that an operator mends them in one go.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.config.checks import cross_checks
from headgate.config.compat import COMPAT_ENV, translate
from headgate.config.file import read_config_file
from headgate.config.settings import ENV_PREFIX, REQUIRED, SETTINGS, Setting, Settings
from headgate.errors import ConfigError
from headgate.spelling import did_you_mean, meant

CONFIG_FLAG = "--config"
CONFIG_ENV = ENV_PREFIX + "CONFIG"

_BY_NAME = {setting.name: setting for setting in SETTINGS}
_BY_ENV = {setting.env: setting for setting in SETTINGS}

_KUBERNETES_LINK = re.compile(
    r"HEADGATE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Kubernetes puts these into every pod beside a Service named `headgate` or `headgate-…`; they are not ours."""

Flags = Mapping[str, "str | Sequence[str]"]
"""Values from the command line, by setting name, as text; `config` among them."""


class SettingsError(ConfigError):
    """The settings can't be used; the message has one line for each thing that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _Reading:
    """Values read so far, the source of each, and the problems found."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.where: dict[str, str] = {}
        self.attempted: set[str] = set()
        self.problems: list[str] = []

    def take(self, setting: Setting, where: str, texts: Sequence[str]) -> None:
        """Parse one source's value; a later source wins over an earlier one."""
        self.attempted.add(setting.name)
        parsed = [value for text in texts for value in self._parse(setting, where, text)]
        if len(parsed) == len(texts):
            self.values[setting.name] = tuple(parsed) if setting.repeatable else parsed[0]
            self.where[setting.name] = where

    def _parse(self, setting: Setting, where: str, text: str) -> Iterator[object]:
        try:
            yield setting.kind.parse(text)
        except ValueError as error:
            reason = str(error) or f"expected {setting.kind.accepts}, got {text!r}"
            self.problems.append(f"{where}: {reason}")


def load_settings(
    flags: Flags, environ: Mapping[str, str], unused: Sequence[str] = (), given_as: Mapping[str, str] | None = None
) -> Settings:
    """The settings of one process, or SettingsError with every problem there is.

    `unused` names settings that this process never reads: they are None, though others require them. `given_as` has
    the flags of settings that came by another one than their own.
    """
    reading = _Reading()
    reading.attempted.update(unused)
    reading.values.update(dict.fromkeys(unused))
    config = flags.get("config") or environ.get(CONFIG_ENV)
    if config:
        _take_file(reading, Path(str(config)))
    file_problems = len(reading.problems)
    _take_compat(reading, environ)
    _take_environment(reading, environ)
    _take_flags(reading, flags, given_as or {})
    if not file_problems:
        _require(reading)
    reading.problems.extend(cross_checks(_with_defaults(reading), reading.where))
    if reading.problems:
        raise SettingsError(reading.problems)
    return Settings(**reading.values)


def _take_file(reading: _Reading, path: Path) -> None:
    for entry in read_config_file(path, reading.problems):
        where = f"{path}:{entry.line}: {entry.key}"
        setting = _BY_NAME.get(entry.key)
        if setting is None:
            reading.problems.append(f"{where}: is not a setting{did_you_mean(entry.key, list(_BY_NAME))}")
        elif setting.repeatable or not entry.is_list:
            reading.take(setting, where, entry.texts)
        else:
            reading.problems.append(f"{where}: expected {setting.kind.accepts}, got a list")


def _take_compat(reading: _Reading, environ: Mapping[str, str]) -> None:
    """Another service's variables, where the environment asks for it: over the file, under our own variables."""
    translation = translate(environ)
    reading.problems.extend(translation.problems)
    for name, given in translation.settings.items():
        reading.take(_BY_NAME[name], given.where, [given.text])


def _take_environment(reading: _Reading, environ: Mapping[str, str]) -> None:
    for name, text in environ.items():
        if not name.startswith(ENV_PREFIX) or name in (CONFIG_ENV, COMPAT_ENV) or not text:
            continue
        setting = _BY_ENV.get(name)
        if setting is not None:
            reading.take(setting, name, _split(text) if setting.repeatable else [text])
        elif not _KUBERNETES_LINK.fullmatch(name):
            reading.problems.append(f"{name}: is not a setting{_meant_variable(name)}")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _take_flags(reading: _Reading, flags: Flags, given_as: Mapping[str, str]) -> None:
    for name, given in flags.items():
        if name != "config":
            setting = _BY_NAME[name]
            where = given_as.get(name, setting.flag)
            reading.take(setting, where, [given] if isinstance(given, str) else given)


def _require(reading: _Reading) -> None:
    for setting in SETTINGS:
        if setting.default is REQUIRED and setting.name not in reading.attempted:
            reading.problems.append(
                f"{setting.name}: is required: give {setting.flag} {setting.kind.metavar}, "
                f"{setting.env} or `{setting.name}:` in the config file"
            )


def _with_defaults(reading: _Reading) -> dict[str, Any]:
    return {setting.name: reading.values.get(setting.name, setting.default) for setting in SETTINGS}


def _meant_variable(name: str) -> str:
    # The prefix that all share would make everything look alike.
    close = meant(name.removeprefix(ENV_PREFIX).lower(), [*_BY_NAME, "config"])
    return "" if close is None else f"; did you mean {ENV_PREFIX}{close.upper()}?"
