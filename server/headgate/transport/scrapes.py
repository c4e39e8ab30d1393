"""Metrics as text, rendered once a second at most: for whoever asks in between, what was rendered last is kept.

Rendering ten thousand rules takes some hundred milliseconds; whoever asks, however often, costs that once.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from headgate.telemetry.exposition import Format, format_for

Render = Callable[[Format], Awaitable[bytes]]


class Scrapes:
    """Keeps the last text of each format."""

    def __init__(self, render: Render, kept_s: float) -> None:
        self._render = render
        self._kept_s = kept_s
        self._texts: dict[Format, asyncio.Task[bytes]] = {}
        self._made_s: dict[Format, float] = {}

    async def serve(self, request: web.Request) -> web.Response:
        """Answer a scraper in the format that it asks for."""
        form = format_for(request.headers.get("Accept", ""))
        return web.Response(body=await self.text(form), headers={"Content-Type": form})

    async def text(self, form: Format) -> bytes:
        """Return the text in a format. Those who ask while it is rendered wait for the same one."""
        loop = asyncio.get_running_loop()
        task = self._texts.get(form)
        if task is None or (task.done() and loop.time() >= self._made_s.get(form, 0.0) + self._kept_s):
            self._made_s.pop(form, None)
            task = self._texts[form] = loop.create_task(self._rendered(form), name="scrape")
        # Whoever leaves leaves it to the others.
        return await asyncio.shield(task)

    async def _rendered(self, form: Format) -> bytes:
        text = await self._render(form)
        self._made_s[form] = asyncio.get_running_loop().time()
        return text
