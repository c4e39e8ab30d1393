"""A Flask application whose requests are limited by user, or by address where there is none."""

import os

from flask import Flask
from headgate_client import Headgate
from headgate_client.middleware.http import HttpRequest
from headgate_client.middleware.proxies import ClientAddress
from headgate_client.middleware.wsgi import RateLimitMiddleware

limiter = Headgate(os.environ.get("HEADGATE", "127.0.0.1:8081"), "edge")
address = ClientAddress(trusted=["10.0.0.0/8"])


def by_user(request: HttpRequest) -> dict[str, str]:
    return {"user": request.headers.get("x-user") or address(request)}


app = Flask(__name__)
app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limiter, by_user, exempt=["/healthz"])  # type: ignore[method-assign]


@app.get("/")
def index() -> dict[str, str]:
    return {"hello": "world"}


@app.get("/healthz")
def healthz() -> str:
    return ""


if __name__ == "__main__":
    app.run("127.0.0.1", int(os.environ.get("PORT", "8000")))
