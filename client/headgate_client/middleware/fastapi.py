"""A limit for single routes of FastAPI, as a dependency.

```python
@app.get("/search", dependencies=[Depends(RateLimit(limiter, key=lambda request: {"user": request.headers["x-user"]}))])
```
"""

from collections.abc import Sequence

from fastapi import HTTPException, Request, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from headgate_client.aio import AsyncHeadgate
from headgate_client.arguments import OnError
from headgate_client.limits import EXEMPT
from headgate_client.middleware.gate import CostGiven, Gate, KeyFunction, need
from headgate_client.middleware.http import limit_headers
from headgate_client.values import Decision


class RateLimit:
    """Raises a 429, or returns the decision: `decision: Annotated[Decision, Depends(RateLimit(…))]`.

    `key` is a function of Starlette's request; an `HTTPException` that it raises is the answer. The other options are
    those of `Gate`.
    """

    def __init__(
        self,
        limiter: AsyncHeadgate,
        key: KeyFunction[Request],
        *,
        cost: CostGiven[Request] = 1,
        exempt: Sequence[str] = (),
        dry_run: bool = False,
        on_error: OnError | None = None,
    ) -> None:
        need(limiter, AsyncHeadgate, "FastAPI")
        self.gate: Gate[Request] = Gate(
            key, cost=cost, exempt=exempt, dry_run=dry_run, on_error=on_error, meant=_is_answer
        )
        self._limiter = limiter

    async def __call__(self, request: Request, response: Response) -> Decision:
        path = request.url.path
        decision = await self.gate.check_async(self._limiter, request, path)
        if decision is None:
            return EXEMPT
        if not self.gate.passes(decision, path):
            raise HTTPException(429, "too many requests", dict(limit_headers(decision)))
        if not self.gate.dry_run:
            response.headers.update(dict(limit_headers(decision)))
        return decision


def _is_answer(error: Exception) -> bool:
    """Tell a key function that refuses a caller, with a 401 say, from one that fails."""
    return isinstance(error, StarletteHTTPException)
