"""A throttle class for Django REST framework.

```python
class PerUser(HeadgateThrottle):
    limiter = limiter

    def get_key(self, request, view):
        return {"user": str(request.user.pk)} if request.user.is_authenticated else {"address": address(request)}

class Search(APIView):
    throttle_classes = [PerUser]
```

The framework makes a 429 of a denial, with the `Retry-After` that `wait` says; answers of the view have RateLimit
headers, of the throttle that has the least left where there are several.
"""

from typing import Any, ClassVar

from rest_framework.throttling import BaseThrottle

from headgate_client.arguments import OnError
from headgate_client.client import Headgate
from headgate_client.limits import Given, as_descriptors
from headgate_client.middleware.http import REMAINING, RETRY_AFTER, limit_headers
from headgate_client.values import Decision


class HeadgateThrottle(BaseThrottle):  # type: ignore[misc]  # it has no types
    """To be subclassed, with a `limiter` and a `get_key`. None as the key is an exemption."""

    limiter: ClassVar[Headgate | None] = None
    cost: ClassVar[int] = 1
    on_error: ClassVar[OnError | None] = None
    dry_run: ClassVar[bool] = False
    would_deny: ClassVar[int] = 0
    """How many a dry run would have denied."""

    decision: Decision | None = None
    _wait_s: float | None = None

    def get_key(self, request: Any, view: Any) -> Given | None:
        """A descriptor, or a list of them, for a request to a view."""
        raise NotImplementedError(f"{type(self).__name__}.get_key: says what is limited")

    def get_cost(self, request: Any, view: Any) -> int:
        return self.cost

    def allow_request(self, request: Any, view: Any) -> bool:
        if not isinstance(self.limiter, Headgate):
            raise TypeError(f"{type(self).__name__}.limiter: a headgate_client.Headgate, got {self.limiter!r}")
        given = self.get_key(request, view)
        if given is None:
            return True
        self.decision = self.limiter.check(
            as_descriptors(given), cost=self.get_cost(request, view), on_error=self.on_error
        )
        if not self.dry_run:
            headers = dict(limit_headers(self.decision))
            if RETRY_AFTER in headers:
                self._wait_s = float(headers.pop(RETRY_AFTER))  # the framework writes the header
            _show(view, headers)
            return self.decision.allowed
        type(self).would_deny += not self.decision.allowed
        return True

    def wait(self) -> float | None:
        """Seconds until it may be tried again."""
        return self._wait_s


def _show(view: Any, limit: dict[str, str]) -> None:
    """A view's `headers` go into its answer, whether that is a response or an exception."""
    if REMAINING not in limit or not isinstance(headers := getattr(view, "headers", None), dict):
        return
    if REMAINING not in headers or int(headers[REMAINING]) >= int(limit[REMAINING]):
        headers.update(limit)
