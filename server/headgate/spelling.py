"""Guesses at what somebody meant who wrote something that is not there."""

import difflib
from collections.abc import Iterable
from typing import Final

ALIKE: Final = 0.6
"""Share of the letters that two names have in common where one may be meant by the other: a typo, not another word."""

MOST_NAMES: Final = 10_000
"""Names that are compared: a guess is worth some milliseconds, not seconds."""


def meant(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; None where none is like it."""
    names = [other for other, _ in zip(known, range(MOST_NAMES), strict=False)]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=ALIKE)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message, or nothing."""
    close = meant(name, known)
    return "" if close is None else f"; did you mean {close}?"
