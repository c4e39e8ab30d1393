"""httpx that obeys `Retry-After`: a request that gets a 429 waits as it is told, and is made again.

```python
client = httpx.Client(transport=RetryAfterTransport())
client = httpx.AsyncClient(transport=AsyncRetryAfterTransport())
```

A 429 was not processed, so every method may be repeated; a body that can be read once only can't be.
"""

import httpx

from headgate_client.middleware.obeying import Obey, parse_retry_after

TOO_MANY_REQUESTS = 429


class RetryAfterTransport(httpx.BaseTransport):
    """Around another transport, httpx's own if none is given."""

    def __init__(self, transport: httpx.BaseTransport | None = None, *, obey: Obey | None = None) -> None:
        self._transport = transport or httpx.HTTPTransport()
        self._obey = obey or Obey()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        waits = self._obey.waits()
        while True:
            response = self._transport.handle_request(request)
            if response.status_code != TOO_MANY_REQUESTS or not _can_repeat(request):
                return response
            wait_s = waits.next_s(parse_retry_after(response.headers.get("retry-after")))
            if wait_s is None:
                return response
            response.read()
            response.close()
            self._obey.clock.sleep(wait_s)

    def close(self) -> None:
        self._transport.close()


class AsyncRetryAfterTransport(httpx.AsyncBaseTransport):
    """The same for asyncio."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None, *, obey: Obey | None = None) -> None:
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._obey = obey or Obey()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        waits = self._obey.waits()
        while True:
            response = await self._transport.handle_async_request(request)
            if response.status_code != TOO_MANY_REQUESTS or not _can_repeat(request):
                return response
            wait_s = waits.next_s(parse_retry_after(response.headers.get("retry-after")))
            if wait_s is None:
                return response
            await response.aread()
            await response.aclose()
            await self._obey.clock.sleep_async(wait_s)

    async def aclose(self) -> None:
        await self._transport.aclose()


def _can_repeat(request: httpx.Request) -> bool:
    """Bytes can be sent again; a stream of the caller's was used up by the first try."""
    return isinstance(request.stream, httpx.ByteStream)
