"""The garbage collector's policy, on the real collector, in a process of its own."""

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import PATIENCE_S

RULES = """
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 1000}
"""

SCRIPT = """
import gc
from headgate.runtime.garbage import YOUNG_OBJECTS, MemoryKeeper

class Thing:
    __slots__ = ("other",)

ballast = [Thing() for _ in range(200_000)]
keeper = MemoryKeeper()
before = gc.get_threshold()
keeper.start()
assert gc.get_freeze_count() > 200_000, "what was there at the start is set aside"
assert not keeper.tick(0), "nothing new, nothing to do"

full = gc.get_stats()[2]["collections"]
most = 0

def watch(phase, info):
    global most
    if phase == "start":
        most = max(most, sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

gc.callbacks.append(watch)
kept = []
ticks = 0
for _ in range(300):
    kept.extend(Thing() for _ in range(1_000))
    ticks += keeper.tick(0)
gc.callbacks.remove(watch)

assert gc.get_stats()[2]["collections"] == full, "a full collection ran by itself"
assert gc.get_freeze_count() > 200_000 + 300_000 - 2 * YOUNG_OBJECTS, "what survived is set aside"
freezes = 300_000 / YOUNG_OBJECTS
assert freezes * 2 / 3 <= ticks <= freezes * 4 / 3, f"one freeze per {YOUNG_OBJECTS} new objects, not {ticks}"

# Where as much goes as comes: an old cell expires, or is let go, for every new one.
gc.callbacks.append(watch)
most_growing, most = most, 0
for made in range(300):
    for position in range(1_000):
        kept[position] = Thing()
    kept = kept[1_000:] + kept[:1_000]
    keeper.tick((made + 1) * 1_000)
kept.extend(Thing() for _ in range(2 * YOUNG_OBJECTS))
gc.callbacks.remove(watch)
most = max(most, most_growing)

# A cycle that died young is found without a full collection.
class Node:
    pass

import weakref
node = Node(); node.itself = node
gone = weakref.ref(node)
del node
more = [Thing() for _ in range(YOUNG_OBJECTS * 2)]
keeper.tick(300_000)
assert gone() is None, "a dead cycle was kept"

# Reference counting goes on for what was set aside.
count = gc.get_freeze_count()
kept.clear(); ballast.clear()
assert gc.get_freeze_count() < count - 400_000, "what was set aside is never freed"
keeper.stop()
assert gc.get_threshold() == before
print(most)
"""


OLD_AND_NEW_PLANS = """
import gc, random, sys
from pathlib import Path
from headgate.clock import SystemClock
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.rules.directory import load_directory
from headgate.runtime.garbage import MemoryKeeper
from headgate_client.values import Descriptor, encode_request

CALLS, KEYS = 2_000, 20
rules = load_directory(Path(sys.argv[1]))
engine = Engine(SystemClock(), max_cells=CALLS * KEYS)
settings = AnswerSettings(match_cache_entries=2 * CALLS, match_cache_bytes=12 * 2**20)
handler = RateLimitHandler(rules=lambda: rules, engine=engine, random=random.Random(1), settings=settings)
payloads = [
    encode_request("edge", [Descriptor([("user", f"{call}-{key}")]) for key in range(KEYS)], 0).SerializeToString()
    for call in range(CALLS)
]
keeper = MemoryKeeper()
keeper.start()
most = 0

def watch(phase, info):
    global most
    if phase == "start":
        most = max(most, sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

gc.callbacks.append(watch)
for _ in range(5):
    for payload in payloads:
        handler.answer(payload)
        keeper.tick(engine.counters.stats.created + handler.stats.charges_kept)
more = [[] for _ in range(5_000)]  # the collector looks at last, at whatever is young
gc.callbacks.remove(watch)
assert handler.stats.plans_evicted > 2 * CALLS, "old plans make room for new ones"
assert engine.counters.stats.created == CALLS * KEYS, "all counters stay"
print(most)
"""


def test_live_objects_are_set_aside_and_make_no_long_pause() -> None:
    # A look at the young takes half a millisecond; walking the 500,000 would take 20 and more.
    assert 0 < most_looked_at(SCRIPT) < 10_000


def test_plans_that_take_the_places_of_others_make_no_long_pause(tmp_path: Path) -> None:
    """As many objects go as come, so the collector by itself would look when all are young, some 100,000."""
    (tmp_path / "edge.yaml").write_text(RULES)
    assert 0 < most_looked_at(OLD_AND_NEW_PLANS, str(tmp_path)) < 10_000


def most_looked_at(script: str, *arguments: str) -> int:
    """Run a script that prints the most objects that were looked at in one go."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
