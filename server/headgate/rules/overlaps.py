"""Overlap of two patterns: the patterns that together match what both of them match.

Two patterns of a few stars have few of these: `a*` and `*b` have `a*b`, `a*` and `*a` have `a*a` and `a`. Their number
grows with the ways in which the stars of one can take in parts of the other, so callers bound how many they look at.
"""

import re
from collections.abc import Iterator

from headgate.rules.wildcards import STAR

_STARS = re.compile(r"\*+")

_Place = tuple[int, int]
"""Characters of either pattern that have been gone through."""


def overlaps(left: str, right: str) -> Iterator[str]:
    """Patterns that match what `left` and `right` both do, each once; a value without stars is one too."""
    left, right = (_STARS.sub(STAR, pattern) for pattern in (left, right))
    open_places = _open_places(left, right)
    end = (len(left), len(right))
    seen: set[tuple[_Place, str]] = set()
    waiting = [((0, 0), "")] if (0, 0) in open_places else []
    while waiting:
        place, text = waiting.pop()
        if (place, text) in seen:
            continue
        seen.add((place, text))
        if place == end:
            yield text
        for more, following in _steps(left, right, place):
            if following in open_places:
                waiting.append((following, text if text.endswith(STAR) and more == STAR else text + more))


def _open_places(left: str, right: str) -> set[_Place]:
    """Places from which both patterns can be gone through to their ends."""
    places = {(len(left), len(right))}
    for i in range(len(left), -1, -1):
        for j in range(len(right), -1, -1):
            if any(following in places for _, following in _steps(left, right, (i, j))):
                places.add((i, j))
    return places


def _steps(left: str, right: str, place: _Place) -> list[tuple[str, _Place]]:
    """Ways on from a place: the text that both match there, and the place after it."""
    i, j = place
    ours, theirs = left[i : i + 1], right[j : j + 1]
    if ours == theirs == STAR:
        return [(STAR, (i, j + 1)), (STAR, (i + 1, j))]
    if ours == STAR:
        return [("", (i + 1, j)), *([(theirs, (i, j + 1))] if theirs else [])]
    if theirs == STAR:
        return [("", (i, j + 1)), *([(ours, (i + 1, j))] if ours else [])]
    return [(ours, (i + 1, j + 1))] if ours and ours == theirs else []
