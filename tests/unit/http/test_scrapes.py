"""Rendered metrics are kept for all who ask: whoever asks often does not have them rendered as often."""

import asyncio

import pytest
from headgate.telemetry.exposition import Format
from headgate.transport.scrapes import Scrapes


class Rendering:
    """Renders when it is told to, and counts."""

    def __init__(self) -> None:
        self.count = 0
        self.go_on = asyncio.Event()

    async def __call__(self, _form: Format) -> bytes:
        self.count += 1
        number = self.count
        await self.go_on.wait()
        return b"%d" % number


@pytest.mark.parametrize(("kept_s", "texts"), [(60.0, [b"1", b"1", b"1"]), (0.0, [b"1", b"2", b"3"])])
async def test_a_text_is_kept_for_its_time(kept_s: float, texts: list[bytes]) -> None:
    rendering = Rendering()
    rendering.go_on.set()
    scrapes = Scrapes(rendering, kept_s)
    assert [await scrapes.text(Format.TEXT) for _ in range(3)] == texts


async def test_who_asks_while_it_is_rendered_waits_for_the_same_one() -> None:
    rendering = Rendering()
    scrapes = Scrapes(rendering, 0.0)
    asking = [asyncio.create_task(scrapes.text(Format.TEXT)) for _ in range(50)]
    await asyncio.sleep(0)
    # Whoever leaves leaves it to the others.
    asking.pop().cancel()
    rendering.go_on.set()
    assert await asyncio.gather(*asking) == [b"1"] * 49
