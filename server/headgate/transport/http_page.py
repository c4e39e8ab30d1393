"""The page at `/`: one document with its style and script in it, the same for everybody.

It has nothing of this server in it: what it shows, its script asks for, with the reader's own token
where one is demanded. The browser is told to run that script and to ask this server, and nothing else.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

from aiohttp import web

ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}
"""Addresses that stand for every one of this machine, and the one that a browser on it takes."""

SCRIPTS: Final = ("tables.js", "charts.js", "region.js", "key.js", "page.js")
"""Files of the one script, in order: each uses those before it, and the last one begins."""


def page_address(listeners: Mapping[str, str]) -> dict[str, str]:
    """`page`: where a browser on this machine finds it, by the listeners' addresses; nothing for a Unix socket."""
    address = listeners.get("admin") or listeners["http"]
    if address.startswith("unix:"):
        return {}
    host, _, port = address.rpartition(":")
    return {"page": f"http://{ANY_ADDRESS.get(host, host)}:{port}/"}


async def page(_: web.Request) -> web.Response:
    """`GET /`."""
    document, headers = _made()
    return web.Response(body=document, headers=headers)


@cache
def _made() -> tuple[bytes, dict[str, str]]:
    files = resources.files("headgate.transport") / "page"
    style = (files / "page.css").read_text("utf-8")
    script = "\n".join(['"use strict";', *((files / name).read_text("utf-8") for name in SCRIPTS)])
    document = (files / "page.html").read_text("utf-8").replace("@style@", style).replace("@script@", script)
    policy = [
        "default-src 'none'",
        "connect-src 'self'",
        "img-src data:",
        f"style-src {_hash(style)}",
        f"script-src {_hash(script)}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return document.encode(), {
        "Content-Type": "text/html; charset=utf-8",
        "Cache-Control": "no-cache",
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
