"""Celery tasks under one limit for all workers: `celery -A examples.client.celery_app worker`."""

import os

from celery import Celery
from headgate_client import Headgate
from headgate_client.middleware.celery import rate_limited

limiter = Headgate(os.environ.get("HEADGATE", "127.0.0.1:8081"), "edge", on_error="closed")
app = Celery("mails", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379/0"))


@app.task  # type: ignore[untyped-decorator]
@rate_limited(limiter, key=lambda user, text: {"user": user}, max_retries=20)
def send_mail(user: str, text: str) -> str:
    return f"sent to {user}: {text}"
