"""Shares as people write them, `1%` or `0.5%`, and as they are kept: whole millionths, so that none is a float."""

import re
from typing import Final

MILLION: Final = 1_000_000
ACCEPTS: Final = "a percentage from 0% to 100%, like 5% or 0.5%"
_PERCENT: Final = re.compile(r"(\d{1,3})(?:\.(\d{1,4}))?%", re.ASCII)


def millionths(text: str) -> int:
    """Read a percentage, with at most four places. Raises ValueError."""
    match = _PERCENT.fullmatch(text.strip())
    share = MILLION + 1 if match is None else int(match[1]) * MILLION // 100 + int((match[2] or "").ljust(4, "0"))
    if share > MILLION:
        raise ValueError(f"expected {ACCEPTS}, found {text!r}")
    return share


def percent(share: int) -> str:
    """Write a share in millionths as a percentage."""
    whole, part = divmod(share, MILLION // 100)
    return f"{whole}.{part:04d}".rstrip("0").rstrip(".") + "%"
