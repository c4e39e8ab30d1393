"""Limits for Celery tasks: a task that is over its limit is put back, to run when there is room.

```python
@app.task
@rate_limited(limiter, key=lambda user, **_: {"user": user})
def send(user, text): …
```

Unlike Celery's `rate_limit`, which each worker keeps for itself, this is one limit for all of them.
"""

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from celery import current_task

from headgate_client.arguments import OnError
from headgate_client.backoff import Backoff
from headgate_client.client import Headgate
from headgate_client.clock import SYSTEM_CLOCK
from headgate_client.limits import Cost, Guarded, Key
from headgate_client.middleware.gate import need
from headgate_client.values import RateLimited

logger = logging.getLogger("headgate_client")

P = ParamSpec("P")
R = TypeVar("R")


def rate_limited(
    limiter: Headgate,
    key: Key,
    *,
    cost: Cost = 1,
    max_retries: int | None = None,
    dry_run: bool = False,
    on_error: OnError | None = None,
    backoff: Backoff | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Goes below `@app.task`. `key` is a descriptor, or a function of the task's arguments; None is an exemption.

    A denied task is retried after the server's time and full jitter, `max_retries` times or for ever. Called
    directly, outside a worker, it raises RateLimited. With `dry_run` every task is asked for and charged, and none is
    put back: a line in the log names each that would have been.
    """
    need(limiter, Headgate, "Celery")
    guarded = Guarded(None, key, {}, cost, None, on_error)
    waits = backoff or Backoff(base=1.0, cap=60.0)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            descriptors = guarded.descriptors(*args, **kwargs)
            if descriptors is not None:
                decision = limiter.check(descriptors, cost=guarded.cost_of(*args, **kwargs), on_error=on_error)
                if not decision and dry_run:
                    logger.info("dry run: %s would have been put back", function.__name__)
                elif not decision:
                    _put_back(RateLimited(decision), waits, max_retries)
            return function(*args, **kwargs)

        return limited

    return decorate


def _put_back(denial: RateLimited, waits: Backoff, max_retries: int | None) -> None:
    task: Any = current_task
    if not task or task.request.called_directly:
        raise denial
    wait_s = waits.wait_s(denial.retry_after, task.request.retries, SYSTEM_CLOCK.random())
    # Raises: Retry, or the denial when there were enough of them. None would be the task's own number, which is 3.
    task.retry(exc=denial, countdown=wait_s, max_retries=sys.maxsize if max_retries is None else max_retries)
