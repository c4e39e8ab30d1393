"""HTTP callers that obey `Retry-After`: `python callers.py http://127.0.0.1:8000/`."""

import sys

import httpx
import requests
from headgate_client.middleware.httpx import RetryAfterTransport
from headgate_client.middleware.obeying import Obey
from headgate_client.middleware.requests import RetryAfterAdapter

obey = Obey(attempts=5, max_wait=60)  # no more tries, and no more seconds, than these

if __name__ == "__main__":
    with httpx.Client(transport=RetryAfterTransport(obey=obey)) as client:
        print("httpx", client.get(sys.argv[1], headers={"x-user": "alice"}).status_code)

    with requests.Session() as session:
        session.mount("http://", RetryAfterAdapter(obey=obey))
        session.mount("https://", RetryAfterAdapter(obey=obey))
        print("requests", session.get(sys.argv[1], headers={"x-user": "alice"}, timeout=10).status_code)
