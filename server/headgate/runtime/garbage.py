"""The garbage collector's policy: no pause that grows with the number of live cells.

A full collection walks every tracked object: 100 ms and more with a million cells,
during which nothing is decided. Cells are freed by reference counting alone (whoever
drops one unlinks it), so walking them finds nothing. Hence:

- after startup, everything that is there is collected once and then frozen, that is,
  never walked again;
- automatic collections look at young objects only, and full ones never start by themselves;
- when enough new objects have survived such a look, the youngest are looked at once more, and
  what is left, mostly cells, is frozen too (a list splice, about a microsecond): no object is looked at twice;
- the same when enough cells and plans were made since: the collector counts what comes less what goes, so where each
  new one takes the place of an old one it would wait until a whole table is young, and then look at all of it.

What this gives up: a cycle that was alive at the very moment of a look and died
later is not found. Freezes happen once per 2,000 objects that stayed, so what is
lost that way is a small share of what the cells themselves take.
"""

import gc

YOUNG_OBJECTS = 2_000
"""Containers, more than were freed, that start a look at the young ones: half a millisecond for counters of a region.
Old ones that are freed meanwhile, pages of the decision log say, make it three times as many. Larger makes the pause
longer, up to 12 ms with 10,000; smaller wastes time on objects that are about to die."""

MADE = 500
"""Cells, or charges of kept plans, after which it is looked: some objects each, half a millisecond together."""

NEVER = 1_000_000
"""Young collections before an automatic older one: never reached, because `tick` comes first."""


class MemoryKeeper:
    """Owns the collector's thresholds from `start` to `stop`. Call `tick` after each moment of deciding."""

    def __init__(self) -> None:
        self.freezes = 0
        """Times that surviving objects were frozen, for `/metrics`."""
        self._thresholds_before = gc.get_threshold()
        self._made = 0
        """Number that was made until the last look."""

    def start(self) -> None:
        """Collect once and freeze what is left. Call it when all that lives for long exists: rules, tables, modules."""
        self._thresholds_before = gc.get_threshold()
        gc.set_threshold(YOUNG_OBJECTS, NEVER, NEVER)
        gc.collect()
        self._freeze()

    def tick(self, made: int) -> bool:
        """Freeze the objects that survived, if there are enough of them. Returns whether there were.

        `made`: cells, and charges of kept plans, since the start of the process, those among them that are gone.
        """
        if made - self._made < MADE and gc.get_count()[1] == 0:
            return False
        self._made = made
        gc.collect(0)
        self._freeze()
        return True

    def stop(self) -> None:
        """Let the collector run as often as it did before."""
        gc.set_threshold(*self._thresholds_before)

    def _freeze(self) -> None:
        gc.freeze()
        self.freezes += 1
