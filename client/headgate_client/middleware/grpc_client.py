"""gRPC calls that obey: one that gets RESOURCE_EXHAUSTED with a time waits that long, and is made again.

```python
channel = grpc.intercept_channel(grpc.insecure_channel(address), RetryInfoInterceptor())
channel = grpc.aio.insecure_channel(address, interceptors=[AsyncRetryInfoInterceptor()])
```

Calls with one request and one answer only. Without a time in the status (`google.rpc.RetryInfo`, `retry-after` or
gRPC's pushback) the call is not repeated: a message that is too big gets the same status. A call's own deadline counts
for each try by itself; `max_wait` bounds the waits.
"""

from typing import Any

import grpc
import grpc.aio

from headgate_client.middleware.obeying import Obey
from headgate_client.middleware.rpc_status import retry_delay_s


class RetryInfoInterceptor(grpc.UnaryUnaryClientInterceptor):
    """For channels of threads. A call made by `.future()` waits in the caller's thread too."""

    def __init__(self, obey: Obey | None = None) -> None:
        self._obey = obey or Obey()

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        waits = self._obey.waits()
        while True:
            call = continuation(client_call_details, request)
            if call.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                return call
            said_s = retry_delay_s(call.trailing_metadata())
            wait_s = None if said_s is None else waits.next_s(said_s)
            if wait_s is None:
                return call
            self._obey.clock.sleep(wait_s)


class AsyncRetryInfoInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """For channels of asyncio."""

    def __init__(self, obey: Obey | None = None) -> None:
        self._obey = obey or Obey()

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        waits = self._obey.waits()
        while True:
            call = await continuation(client_call_details, request)
            if await call.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                return call
            said_s = retry_delay_s(await call.trailing_metadata())
            wait_s = None if said_s is None else waits.next_s(said_s)
            if wait_s is None:
                return call
            await self._obey.clock.sleep_async(wait_s)
