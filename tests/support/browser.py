"""A real browser without a window: Debian's Chromium, spoken to in its own protocol for developers.

```python
async with browser() as tab:
    await tab.open("http://127.0.0.1:8080/")
    await tab.until("document.title === 'Headgate'")
```
"""

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.waiting import PATIENCE_S, until

ANSWER_S: Final = PATIENCE_S
WIDTH, HEIGHT = 1200, 1500
FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # tests run as root too, in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-port=0",
    f"--window-size={WIDTH},{HEIGHT}",
)


class Tab:
    """One page. Whatever its scripts throw, or write to the console as errors, is in `errors`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self) -> None:
        """Until the browser is gone."""
        async for message in self._socket:
            told = json.loads(message.data)
            if answer := self._answers.pop(told.get("id", 0), None):
                answer.set_result(told)
            elif told.get("method") == "Runtime.exceptionThrown":
                self.errors.append(told["params"]["exceptionDetails"].get("exception", {}).get("description", "?"))
            elif told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.errors.append(told["params"]["entry"]["text"] + " " + told["params"]["entry"].get("url", ""))

    async def call(self, method: str, **params: Any) -> Any:
        """One command of the protocol, and its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        told = await asyncio.wait_for(answer, ANSWER_S)
        assert "error" not in told, (method, told)
        return told["result"]

    async def open(self, url: str, scheme: str = "light") -> None:
        """Load a page, as a reader who prefers light or dark ones."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def resize(self, width: int, height: int = HEIGHT) -> None:
        """Make the window so wide and high."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait for a condition in the page."""
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while not await self.evaluate(f"Boolean({expression})"):
            assert asyncio.get_running_loop().time() < deadline_s, f"waited {PATIENCE_S} s for {expression}"
            await asyncio.sleep(0.05)

    async def text(self, selector: str) -> str:
        """What a reader sees there."""
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def press(self, key: str, code: int) -> None:
        """Press a key that has no character, or Enter."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    async def cut_off(self) -> list[str]:
        """What a reader can't see whole: beyond the window's edge, or wider than the box that it is in."""
        shown = ".map(one => one.tagName + ' ' + one.textContent.slice(0, 40))"
        every = "[...document.querySelectorAll('body *')]"
        outside = f"{every}.filter(one => one.getBoundingClientRect().right > innerWidth)"
        boxes = "[...document.querySelectorAll('section, td, dd, h2, dialog')]"
        wider = f"{boxes}.filter(one => one.scrollWidth > one.clientWidth + 1)"
        found: list[str] = await self.evaluate(f"[...{outside}{shown}, ...{wider}{shown}]")
        return found

    async def picture(self, height: float | None = None) -> bytes:
        """Of the whole page, or so much of it, as PNG."""
        if height is None:
            height = await self.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
        told = await self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(told["data"])


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """A browser with one tab, gone at the end with all that it wrote."""
    program = shutil.which("chromium")
    assert program is not None, "Chromium is missing: `make test` installs it where apt-get is there, as root"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            program, *FLAGS, f"--user-data-dir={folder}", "about:blank",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port_file = Path(folder) / "DevToolsActivePort"
            await until(lambda: port_file.exists() and port_file.read_text().count("\n"), "the browser")
            async with _tab(int(port_file.read_text().split()[0])) as tab:
                yield tab
        finally:
            process.terminate()
            await process.wait()


@contextlib.asynccontextmanager
async def _tab(port: int) -> AsyncIterator[Tab]:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [page for page in await answer.json() if page["type"] == "page"]
        async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            try:
                yield tab
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
