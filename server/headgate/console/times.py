"""Times as people give them to commands and read them there: UTC, unless they ask for their own zone.

Everything that Headgate prints names its zone: `Z` is UTC, `+01:00` an offset.
"""

import argparse
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from headgate.console.parsers import accepting
from headgate.errors import ConfigError

TIME_HELP: Final = (
    "2026-11-17T03:47:00Z, 03:47 (the last one), 03:47+01:00, unix seconds, or -10m (default: now); UTC unless it has "
    "an offset, or with --local"
)

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME_OF_DAY: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:?\d{2})?")
_PRINTED: Final = re.compile(r"\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


def seconds(milliseconds: int) -> str:
    """A stretch of time for people: exact below a minute, in larger units above."""
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:g} s"
    minutes, rest = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join([f"{number} {unit}" for number, unit in parts if number][:2])


def add_local(parser: argparse.ArgumentParser) -> None:
    """Add the flag that asks for this machine's time zone."""
    parser.add_argument(
        "--local", action="store_true", help="times in this machine's time zone (TZ), instead of UTC; JSON stays UTC"
    )


def zone_of(args: argparse.Namespace) -> tzinfo | None:
    """The zone that the flags ask for; None is this machine's."""
    return None if args.local else UTC


def in_zone(line: str, zone: tzinfo | None) -> str:
    """Write the times of a line, which are UTC, in a zone."""
    return line if zone is UTC else _PRINTED.sub(lambda found: _moved(found.group(), zone), line)


def _moved(text: str, zone: tzinfo | None) -> str:
    return datetime.fromisoformat(text).astimezone(zone).isoformat(timespec="milliseconds")


def stretch(text: str) -> int:
    """A stretch of time as an argument, in milliseconds."""
    with accepting("a stretch of time such as 30s, 5m or 1h", text):
        return milliseconds(text)


def milliseconds(text: str) -> int:
    """A stretch of time such as `5m` or `30s`."""
    unit = next((unit for unit in ("ms", "s", "m", "h", "d") if text.endswith(unit)), "")
    number = float(text[: -len(unit)]) if unit else float(text) * 1000
    if not 0 <= number < 1e12:
        raise ValueError
    return int(number * _UNITS.get(unit, 1))


def parse_time(text: str | None, now_ms: int, zone: tzinfo | None = UTC) -> int:
    """A point in time, in unix milliseconds; `zone` is meant where it names none. Raises ConfigError."""
    if text is None:
        return now_ms
    try:
        if text.startswith("-"):
            return now_ms - milliseconds(text[1:])
        if text.replace(".", "", 1).isdigit():
            seconds = float(text)
            return int(seconds if seconds > 1e11 else seconds * 1000)  # milliseconds are as welcome
        moment = _last_such(text, now_ms, zone) if _TIME_OF_DAY.fullmatch(text) else datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else _in(moment, zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError(f"--at {text!r}: expected {TIME_HELP}") from None


def _last_such(text: str, now_ms: int, zone: tzinfo | None) -> datetime:
    """The last time that it was so late."""
    offset = datetime.fromisoformat(f"2000-01-01T{text.zfill(len(text) + (text[1] == ':'))}")
    zone = offset.tzinfo or zone
    now = datetime.fromtimestamp(now_ms / 1000, zone or UTC)
    if zone is None:
        now = now.astimezone(None)
    moment = _in(datetime.combine(now.date(), offset.time()), zone)
    if moment <= now:
        return moment
    return _in(datetime.combine(now.date() - timedelta(days=1), offset.time()), zone)


def _in(moment: datetime, zone: tzinfo | None) -> datetime:
    """A time of that zone, which it does not name itself."""
    return moment.astimezone(None) if zone is None else moment.replace(tzinfo=zone)
