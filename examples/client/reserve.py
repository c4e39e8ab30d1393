"""Charge an estimate, and what it came to when that is known. Run it beside `make run`."""

import asyncio
import os

from headgate_client import AsyncHeadgate, Headgate, RateLimited

ADDRESS = os.environ.get("HEADGATE", "127.0.0.1:8081")


def ask_the_model(prompt: str) -> tuple[str, int]:
    """Stands for whatever is slow and costs something: its answer, and what that cost."""
    return prompt.upper(), len(prompt)


with Headgate(ADDRESS, "edge") as limiter:
    try:
        with limiter.reserve(estimate=20, user="carol") as reservation:
            answer, tokens = ask_the_model("how are you")
            reservation.actual = tokens  # leaving the block settles it: 9 are given back
        print(answer, "for", reservation.actual, "of", 20)
    except RateLimited as denied:
        print(f"try again in {denied.decision.retry_after:.1f} s")

    # Without a block: a reservation is true when it was admitted. Its id can be settled by any process.
    later = limiter.reserve(estimate=5, ttl=60, user="carol")
    if later:
        print("settled:", limiter.settle(later.id, 8))


async def the_same_with_asyncio() -> None:
    async with AsyncHeadgate(ADDRESS, "edge") as limiter:
        async with limiter.reserve(estimate=20, user="dave") as reservation:
            _, reservation.actual = ask_the_model("and you")
        print("asyncio:", reservation.actual)


asyncio.run(the_same_with_asyncio())
