"""The HTTP of all workers under one address, with workers made up over real Unix sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from headgate.supervisor.http import Member, WorkersHttp
from headgate.supervisor.process import WorkerState
from headgate.supervisor.slot import WorkerSlot
from headgate.supervisor.upstream import MAX_ANSWER_BYTES, Upstream
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.http_listener import HttpEndpoint, HttpLimits, HttpListener
from multidict import CIMultiDict

from tests.support.clock import ManualClock


class Worker:
    """Something with a state that answers on a socket; stands in for slot and process."""

    def __init__(self, index: int, path: Path) -> None:
        self.index = index
        self.path = str(path / str(index))
        self.state = WorkerState.SERVING
        self.version = "1"
        self.digest = "d"
        self.asked: list[web.Request] = []
        self.cuts = False
        self.silent = False
        routes = [
            web.get("/readyz", self._say(lambda: {"ready": True, "waits": "for nothing"})),
            web.get("/version", self._say(lambda: {"version": self.version, "node": f"n{index}"})),
            web.get("/rules", self._say(lambda: {"digest": self.digest, "of": index})),
            web.get("/metrics", self._metrics),
            web.post("/json", self._json),
        ]
        self.server = HttpListener(HttpEndpoint(f"unix:{self.path}", LOGGER), routes)

    def describe(self) -> dict[str, Any]:
        return {"worker": self.index, "state": self.state}

    def _say(self, what: Callable[[], Any]) -> Any:
        async def answer(request: web.Request) -> web.Response:
            self.asked.append(request)
            if self.silent:
                await asyncio.Event().wait()
            return web.json_response(what())

        return answer

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=b"# HELP a A.\n# TYPE a gauge\na 1.0\n" + b"#" * (MAX_ANSWER_BYTES if self.cuts else 0)
        )

    async def _json(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        await request.read()
        if self.cuts:
            assert request.transport is not None
            request.transport.abort()
        headers = CIMultiDict([("X-Twice", "1"), ("X-Twice", "2"), ("Content-Type", "application/json")])
        return web.Response(status=429, body=b'{"worker": %d}' % self.index, headers=headers)


class _Quiet:
    def error(self, event: str, **fields: Any) -> None:
        raise AssertionError((event, fields))


LOGGER = BoundedLogger(_Quiet(), ManualClock())


class Front:
    def __init__(self, server: WorkersHttp, workers: list[Worker]) -> None:
        self.server = server
        self.workers = workers

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any, Any]:
        if "data" in more:
            more["headers"] = {"Content-Type": "application/json", **more.get("headers", {})}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"http://{self.server.address}{path}", **more) as response,
        ):
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text, response.headers


@asynccontextmanager
async def front(path: Path, number: int = 2) -> AsyncIterator[Front]:
    async with AsyncExitStack() as stack:
        workers = [Worker(index, path) for index in range(number)]
        members = []
        for worker in workers:
            await worker.server.start()
            stack.push_async_callback(worker.server.stop)
            upstream = Upstream(worker.path)
            stack.push_async_callback(upstream.close)
            members.append(Member(cast(WorkerSlot, worker), upstream))
        server = WorkersHttp(
            HttpEndpoint("127.0.0.1:0", LOGGER, HttpLimits(max_body_bytes=1000)),
            members,
            state=lambda: "serving",
            own_metrics=lambda: b"own 1.0\n",
        )
        await server.start()
        stack.push_async_callback(server.stop)
        yield Front(server, workers)


async def test_a_request_passes_through_as_it_is(tmp_path: Path) -> None:
    async with front(tmp_path) as it:
        headers = {"X-Mine": "yes", "Content-Type": "application/json; odd=1", "Connection": "keep-alive"}
        status, body, answered = await it.call("POST", "/json", data=b"abc", headers=headers)
        assert (status, body) == (429, {"worker": 1})
        assert answered.getall("X-Twice") == ["1", "2"]
        assert answered.getall("Server") == ["headgate"]
        (request,) = it.workers[1].asked
        assert (request.headers["X-Mine"], request.headers["Content-Type"]) == ("yes", "application/json; odd=1")
        assert request.headers["Content-Length"] == "3"


async def test_decisions_go_round_those_that_serve(tmp_path: Path) -> None:
    async with front(tmp_path, 3) as it:
        it.workers[1].state = WorkerState.DRAINING
        told = [(await it.call("POST", "/json", data=b"{}"))[1]["worker"] for _ in range(4)]
        assert sorted(told) == [0, 0, 2, 2]
        for worker in it.workers:
            worker.state = WorkerState.DRAINING
        assert (await it.call("POST", "/json", data=b"{}"))[0] == 429, "while all drain, they still decide"
        for worker in it.workers:
            worker.state = WorkerState.ENDED
        assert (await it.call("POST", "/json", data=b"{}"))[:2] == (503, {"error": "no worker is ready"})


async def test_a_worker_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    async with front(tmp_path) as it:
        await it.workers[0].server.stop()
        for _ in range(4):
            assert (await it.call("POST", "/json", data=b"{}"))[:2] == (429, {"worker": 1})


async def test_a_request_that_may_have_been_counted_is_not_sent_again(tmp_path: Path) -> None:
    async with front(tmp_path) as it:
        it.workers[1].cuts = True
        status, body, _ = await it.call("POST", "/json", data=b"{}")
        assert (status, body) == (503, {"error": "worker 1: ended before it answered: ServerDisconnectedError"})
        assert it.workers[0].asked == []


async def test_a_body_over_the_bound_stays_outside(tmp_path: Path) -> None:
    async with front(tmp_path) as it:
        assert (await it.call("POST", "/json", data=b" " * 1001))[0] == 413
        assert [worker.asked for worker in it.workers] == [[], []]


async def test_versions_and_rules_are_those_of_the_first_with_a_note_where_others_differ(tmp_path: Path) -> None:
    async with front(tmp_path) as it:
        assert (await it.call("GET", "/version"))[1] == {"version": "1", "node": "n0", "workers": 2}
        assert (await it.call("GET", "/rules?domain=a%20b"))[1] == {"digest": "d", "of": 0}
        assert it.workers[0].asked[-2].path_qs == "/rules?domain=a%20b"
        it.workers[1].version = "2"
        it.workers[1].digest = "e"
        assert (await it.call("GET", "/version"))[1]["versions"] == {"0": "1", "1": "2"}
        assert (await it.call("GET", "/rules"))[1] == {"digest": "d", "of": 0, "digests": {"0": "d", "1": "e"}}
        it.workers[0].state = WorkerState.STARTING
        assert (await it.call("GET", "/rules"))[1] == {"digest": "e", "of": 1}
        await it.workers[1].server.stop()
        assert (await it.call("GET", "/version"))[:2] == (503, {"error": "no worker is ready"})


@pytest.mark.slow
async def test_ready_is_when_all_are(tmp_path: Path) -> None:
    async with front(tmp_path) as it:
        assert (await it.call("GET", "/readyz"))[0] == 200
        it.workers[0].state = WorkerState.STARTING
        status, body, _ = await it.call("GET", "/readyz")
        assert (status, [worker["ready"] for worker in body["workers"]]) == (503, [False, True])
        assert body["workers"][0]["waits"] == "for nothing", "one that starts says why it is not ready"
        it.workers[0].state = WorkerState.SERVING
        await it.workers[0].server.stop()
        status, body, _ = await it.call("GET", "/readyz")
        assert (status, body["workers"][0]["error"]) == (503, "can't be reached: No such file or directory")
        assert (await it.call("GET", "/healthz"))[0] == 200
        it.workers[0].state = WorkerState.STARTING
        status, body, _ = await it.call("GET", "/readyz")
        assert (status, body["workers"][0]) == (503, {"worker": 0, "state": "starting", "ready": False})
        it.workers[1].silent = True
        status, body, _ = await it.call("GET", "/readyz")
        assert (status, body["workers"][1]["error"]) == (503, "no answer within 0.7 s")
        it.workers[1].silent = False


async def test_metrics_of_a_worker_that_says_too_much_are_left_out_and_counted(tmp_path: Path) -> None:
    async with front(tmp_path) as it:
        it.workers[0].cuts = True
        text = (await it.call("GET", "/metrics"))[1]
        assert text == 'own 1.0\n# HELP a A.\n# TYPE a gauge\na{worker="1"} 1.0\n'
        assert it.server.unscraped == {"0": 1, "1": 0}
