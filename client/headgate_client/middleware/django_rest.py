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

from typing import Any, ClassVar, NamedTuple

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework.exceptions import APIException
from rest_framework.throttling import BaseThrottle

from headgate_client.arguments import OnError
from headgate_client.client import Headgate
from headgate_client.limits import Given
from headgate_client.middleware.gate import Gate
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
    _gate: ClassVar[Gate["_Asked"]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._gate = Gate(
            lambda asked: asked.throttle.get_key(asked.request, asked.view),
            cost=lambda asked: asked.throttle.get_cost(asked.request, asked.view),
            on_error=cls.on_error,
            meant=_is_answer,
        )

    def get_key(self, request: Any, view: Any) -> Given | None:
        """A descriptor, or a list of them, for a request to a view."""
        raise NotImplementedError(f"{type(self).__name__}.get_key: says what is limited")

    def get_cost(self, request: Any, view: Any) -> int:
        return self.cost

    def allow_request(self, request: Any, view: Any) -> bool:
        if not isinstance(self.limiter, Headgate):
            raise TypeError(f"{type(self).__name__}.limiter: a headgate_client.Headgate, got {self.limiter!r}")
        self.decision = self._gate.check(self.limiter, _Asked(self, request, view), "")
        if self.decision is None:
            return True
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


class _Asked(NamedTuple):
    """A request, as a throttle is asked for it."""

    throttle: HeadgateThrottle
    request: Any
    view: Any


def _show(view: Any, limit: dict[str, str]) -> None:
    """A view's `headers` go into its answer, whether that is a response or an exception."""
    if REMAINING not in limit or not isinstance(headers := getattr(view, "headers", None), dict):
        return
    if REMAINING not in headers or int(headers[REMAINING]) >= int(limit[REMAINING]):
        headers.update(limit)


def _is_answer(error: Exception) -> bool:
    """Tell an error of which the framework makes an answer, or a throttle without a `get_key`, from one that fails."""
    return isinstance(error, APIException | PermissionDenied | Http404 | NotImplementedError)
