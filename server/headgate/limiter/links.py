"""Links from one counter to the next: how a table keeps its counters in order, by use and by expiry.

The order is in the counters themselves, in rings: each knows who is before and behind it, and one link that is no
counter stands between the last and the first. So a counter is moved and taken out without a search, and a table of a
million is no more work to add to than one of ten: nothing grows.
"""


class Link:
    """A place in two rings: the order of use, and a tick of the expiry wheel. It is in both, or in neither."""

    __slots__ = ("newer", "older", "wheel_after", "wheel_before")

    older: "Link"
    """The one that was used before it; of the oldest the ring's end."""
    newer: "Link"
    wheel_before: "Link"
    """The one that was filed before it in the same tick; of the first the ring's end."""
    wheel_after: "Link"
