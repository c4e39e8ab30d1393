"""A FastAPI application with one limit for everything and another for one route."""

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Request
from headgate_client import AsyncHeadgate, Decision
from headgate_client.middleware.asgi import RateLimitMiddleware
from headgate_client.middleware.fastapi import RateLimit
from headgate_client.middleware.http import HttpRequest
from headgate_client.middleware.proxies import ClientAddress

limiter = AsyncHeadgate(os.environ.get("HEADGATE", "127.0.0.1:8081"), "edge")
address = ClientAddress(trusted=["10.0.0.0/8"])


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with limiter:  # connects before the first request, closes after the last
        yield


def by_user(request: HttpRequest) -> dict[str, str]:
    return {"user": request.headers.get("x-user") or address(request)}


def by_login(request: Request) -> dict[str, str]:
    return {"path": "/login", "user": request.headers.get("x-user") or address(request)}


app = FastAPI(lifespan=lifespan)
app.add_middleware(RateLimitMiddleware, limiter=limiter, key=by_user, exempt=["/healthz"])


@app.get("/")
async def index() -> dict[str, str]:
    return {"hello": "world"}


@app.post("/login")
async def login(decision: Annotated[Decision, Depends(RateLimit(limiter, by_login))]) -> dict[str, int | None]:
    return {"attempts_left": decision.remaining}


@app.get("/healthz")
async def healthz() -> None: ...


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
