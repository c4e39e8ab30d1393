"""Ask a Headgate on this machine for a few decisions. Run it beside `make run`."""

import os

from headgate_client import Headgate

with Headgate(os.environ.get("HEADGATE", "127.0.0.1:8081"), "edge") as limiter:
    decision = limiter.check(user="alice")
    print(decision.allowed, decision.remaining, "of", decision.limit, "left")

    # Several descriptors are admitted all together or not at all.
    both = limiter.check([{"user": "alice"}, {"path": "/login", "user": "alice"}], cost=3)
    print(both.allowed, [status.remaining for status in both.statuses])

    denied = limiter.check(user="banned")
    if not denied:
        print(f"try again in {denied.retry_after:.1f} s")
