"""FastAPI's dependency, Django REST framework's throttle and Celery's tasks, as their users write them."""

import logging
from typing import Annotated, Any

import pytest
from headgate_client import Decision, RateLimited
from headgate_client.testing import FakeServer

from tests.client.serving import get, serve_asgi, serve_wsgi


@pytest.fixture
def server(headgate_server: FakeServer) -> FakeServer:
    headgate_server.limit("edge", "2/minute", user="*")
    return headgate_server


# FastAPI


def test_a_route_of_fastapi_has_a_limit_and_its_neighbour_has_not(server: FakeServer) -> None:
    from fastapi import Depends, FastAPI, Request
    from headgate_client.middleware.fastapi import RateLimit

    app = FastAPI()
    limiter = server.async_client("edge")

    def by_user(request: Request) -> dict[str, str] | None:
        user = request.headers.get("x-user", "nobody")
        return None if user == "admin" else {"user": user}

    limit = RateLimit(limiter, by_user)
    dry = RateLimit(limiter, by_user, dry_run=True)

    @app.get("/search/{text}")
    async def search(text: str, decision: Annotated[Decision, Depends(limit)]) -> dict[str, Any]:
        return {"text": text, "remaining": decision.remaining}

    @app.get("/dry", dependencies=[Depends(dry)])
    async def dry_route() -> None: ...

    @app.get("/free")
    async def free() -> None: ...

    with serve_asgi(app) as address:
        answers = [get(address, "/search/x", x_user="alice") for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert answers[0].json() == {"text": "x", "remaining": 1}
        assert answers[0].headers["ratelimit-remaining"] == "1"
        assert answers[2].json() == {"detail": "too many requests"}
        assert int(answers[2].headers["retry-after"]) >= 60
        assert get(address, "/free", x_user="alice").status == 200
        assert get(address, "/dry", x_user="alice").status == 200
        assert dry.gate.would_deny == 1
        assert {get(address, "/search/x", x_user="admin").status for _ in range(4)} == {200}


def test_a_key_function_of_fastapi_that_refuses_a_caller_is_the_answer_and_one_that_fails_is_not(
    server: FakeServer,
) -> None:
    from fastapi import Depends, FastAPI, HTTPException, Request
    from headgate_client.middleware.fastapi import RateLimit

    async def by_user(request: Request) -> dict[str, int]:
        if "x-user" not in request.headers:
            raise HTTPException(401, "who are you?")
        return {"user": int(request.headers["x-user"])}

    app = FastAPI()

    @app.get("/", dependencies=[Depends(RateLimit(server.async_client("edge"), by_user))])
    async def route() -> None: ...

    with serve_asgi(app) as address:
        assert get(address).status == 401
        assert [get(address, x_user="42").status for _ in range(3)] == [200, 200, 429]
        assert get(address, x_user="no number").status == 200, "on_error is open"


# Django REST framework


@pytest.fixture(scope="module")
def django() -> Any:
    """Configured once: it is the process's."""
    import django
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="x",  # noqa: S106
        LOGGING_CONFIG=None,
        USE_TZ=True,
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None},
    )
    django.setup()
    logging.getLogger("django").setLevel(logging.CRITICAL)
    return django


urlpatterns: list[Any] = []


def test_a_view_of_django_rest_framework_is_throttled(server: FakeServer, django: Any) -> None:
    from django.core.wsgi import get_wsgi_application
    from django.urls import path
    from headgate_client.middleware.django_rest import HeadgateThrottle
    from rest_framework.response import Response
    from rest_framework.views import APIView

    class PerUser(HeadgateThrottle):
        limiter = server.client("edge")

        def get_key(self, request: Any, view: Any) -> dict[str, str] | None:
            user = request.headers.get("x-user", "nobody")
            return None if user == "admin" else {"user": user}

    class Dry(PerUser):
        dry_run = True

    class Search(APIView):  # type: ignore[misc]
        authentication_classes = ()
        permission_classes = ()
        throttle_classes: tuple[type[PerUser], ...] = (PerUser,)

        def get(self, request: Any) -> Any:
            return Response({"found": []})

    class DrySearch(Search):
        throttle_classes = (Dry,)

    class PerTeam(PerUser):
        def get_key(self, request: Any, view: Any) -> dict[str, str] | None:
            return {"team": "all"}

    class BothSearch(Search):
        throttle_classes = (PerTeam, PerUser, PerTeam)

    server.limit("edge", "100/minute", team="*")
    views = {"search": Search, "dry": DrySearch, "both": BothSearch}
    urlpatterns[:] = [path(name, view.as_view()) for name, view in views.items()]
    with serve_wsgi(get_wsgi_application()) as address:
        answers = [get(address, "/search", x_user="alice", accept="application/json") for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert int(answers[2].headers["retry-after"]) >= 60
        assert [answer.headers["ratelimit-remaining"] for answer in answers] == ["1", "0", "0"]
        assert {answer.headers["ratelimit-limit"] for answer in answers} == {"2"}
        assert "Expected available in" in answers[2].json()["detail"]
        assert {get(address, "/search", x_user="admin").status for _ in range(4)} == {200}
        dry = get(address, "/dry", x_user="alice")
        assert (dry.status, "ratelimit-limit" in dry.headers) == (200, False)
        assert (Dry.would_deny, PerUser.would_deny) == (1, 0)
        both = get(address, "/both", x_user="bob")
        assert (both.headers["ratelimit-limit"], both.headers["ratelimit-remaining"]) == ("2", "1"), "the least left"


def test_a_throttle_that_is_not_finished_says_what_is_missing(server: FakeServer, django: Any) -> None:
    from headgate_client.middleware.django_rest import HeadgateThrottle

    with pytest.raises(TypeError, match=r"HeadgateThrottle\.limiter: a headgate_client\.Headgate, got None"):
        HeadgateThrottle().allow_request(None, None)

    class NoKey(HeadgateThrottle):
        limiter = server.client("edge")

    with pytest.raises(NotImplementedError, match=r"NoKey\.get_key: says what is limited"):
        NoKey().allow_request(None, None)


def test_a_throttle_whose_key_fails_fails_by_on_error_and_is_logged_once(
    server: FakeServer, django: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from headgate_client.middleware.django_rest import HeadgateThrottle
    from rest_framework.exceptions import NotAuthenticated

    class Failing(HeadgateThrottle):
        limiter = server.client("edge")

        def get_key(self, request: Any, view: Any) -> dict[str, str]:
            raise request

    class Closed(Failing):
        on_error = "closed"

    assert [Failing().allow_request(KeyError("x"), None) for _ in range(3)] == [True] * 3
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    assert not Closed().allow_request(KeyError("x"), None)
    with pytest.raises(NotAuthenticated):
        Failing().allow_request(NotAuthenticated(), None)


# Celery


def test_a_task_over_its_limit_is_put_back(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    """Without a worker, where Celery tries again at once; with one it is in test_examples.py."""
    from celery import Celery
    from headgate_client.middleware.celery import rate_limited

    app = Celery("test", broker="memory://")
    limiter = server.client("edge", keep_denials=0)
    done: list[int] = []
    tries: list[int] = []

    def key(user: str, number: int) -> dict[str, str] | None:
        tries.append(number)
        if tries.count(number) == 6:
            server.clock.advance(120)
        return {"user": user} if user != "admin" else None

    @app.task  # type: ignore[untyped-decorator]
    @rate_limited(limiter, key)
    def send(user: str, number: int) -> int:
        done.append(number)
        return number

    @app.task  # type: ignore[untyped-decorator]
    @rate_limited(limiter, key={"user": "never"}, max_retries=2, on_error="closed")
    def never() -> None:
        done.append(-1)

    assert [send.apply(("alice", number)).get() for number in range(3)] == [0, 1, 2]
    assert (done, tries) == ([0, 1, 2], [0, 1] + 6 * [2]), "put back, more often than Celery would by itself"
    assert [send.apply(("admin", number)).get() for number in range(3, 7)] == [3, 4, 5, 6]

    @app.task  # type: ignore[untyped-decorator]
    @rate_limited(limiter, key={"user": "alice"}, dry_run=True)
    def dry() -> str:
        return "done"

    caplog.set_level(logging.INFO, "headgate_client")
    assert [dry.apply().get() for _ in range(3)] == ["done"] * 3
    assert caplog.messages.count("dry run: dry would have been put back") >= 1

    server.limit("edge", "0/second", user="never")
    asked = len(server.requests)
    with pytest.raises(RateLimited):
        never.apply().get()
    assert len(server.requests) == asked + 3, "one try and two more"
    with pytest.raises(RateLimited):
        never()  # called as a function
    assert -1 not in done
