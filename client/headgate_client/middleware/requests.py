"""requests that obeys `Retry-After`: a request that gets a 429 waits as it is told, and is made again.

```python
session = requests.Session()
session.mount("https://", RetryAfterAdapter())
```

A 429 was not processed, so every method may be repeated; a body that can be read once only can't be.
"""

from typing import Any

import requests
from requests.adapters import HTTPAdapter

from headgate_client.middleware.obeying import Obey, parse_retry_after

TOO_MANY_REQUESTS = 429


class RetryAfterAdapter(HTTPAdapter):
    """Takes the options of requests' own adapter, and `obey`."""

    def __init__(self, *args: Any, obey: Obey | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._obey = obey or Obey()

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        waits = self._obey.waits()
        while True:
            response = super().send(request, *args, **options)
            can_repeat = request.body is None or isinstance(request.body, str | bytes)
            if response.status_code != TOO_MANY_REQUESTS or not can_repeat:
                return response
            wait_s = waits.next_s(parse_retry_after(response.headers.get("retry-after")))
            if wait_s is None:
                return response
            # Read to the end, so that the connection is used again.
            _ = response.content
            response.close()
            self._obey.clock.sleep(wait_s)
