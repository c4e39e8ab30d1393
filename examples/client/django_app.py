"""Django in one file: every request is limited by WSGI middleware, one API view by a throttle class as well."""

import os
from typing import Any
from wsgiref.simple_server import make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from headgate_client import Headgate
from headgate_client.middleware.wsgi import RateLimitMiddleware

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only an example",  # noqa: S106
    REST_FRAMEWORK={"UNAUTHENTICATED_USER": None},
)
django.setup()

from headgate_client.middleware.django_rest import HeadgateThrottle  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402

limiter = Headgate(os.environ.get("HEADGATE", "127.0.0.1:8081"), "edge")


class LoginThrottle(HeadgateThrottle):
    limiter = limiter

    def get_key(self, request: Any, view: Any) -> dict[str, str]:
        return {"path": "/login", "user": request.headers.get("x-user", "nobody")}


class Login(APIView):  # type: ignore[misc]
    authentication_classes = ()
    permission_classes = ()
    throttle_classes = (LoginThrottle,)

    def post(self, request: Any) -> Any:
        return Response({"welcome": True})


def index(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"hello": "world"})


urlpatterns = [path("", index), path("login", Login.as_view())]
application = RateLimitMiddleware(
    get_wsgi_application(), limiter, lambda request: {"user": request.headers.get("x-user", "nobody")}
)

if __name__ == "__main__":
    with make_server("127.0.0.1", int(os.environ.get("PORT", "8000")), application) as server:
        print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
