"""Limits for web and RPC frameworks, and callers that obey them; one module for each.

| module | for |
|---|---|
| `asgi` | Starlette, FastAPI and every other ASGI application |
| `wsgi` | Flask, Django and every other WSGI application |
| `fastapi` | a dependency for single routes |
| `django_rest` | a throttle class for Django REST framework |
| `grpc_server`, `grpc_server_aio` | interceptors for gRPC servers |
| `celery` | tasks |
| `grpc_client`, `httpx`, `requests` | callers that wait as they are told |

Nothing is imported from here, so that a service needs only the frameworks that it has.
"""
