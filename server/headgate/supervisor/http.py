"""Serves the HTTP address of all workers together, by asking them over their private sockets.

Health is the supervisor's own. Readiness and metrics are those of all workers, asked in
parallel; version and rules those of the first that is ready, with a note where others
differ; decisions are handed to one worker after the other.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from headgate.errors import NotReady
from headgate.runtime.nodes import describe_nodes
from headgate.runtime.top import MOST_SHOWN, asked_limit, merge_tops
from headgate.runtime.trend import asked_grain, merge_trends
from headgate.supervisor.merge import merge_expositions
from headgate.supervisor.process import WorkerState
from headgate.supervisor.slot import WorkerSlot
from headgate.supervisor.upstream import NoAnswer, NotReached, Upstream, WorkerAnswer, end_to_end
from headgate.telemetry.exposition import Format
from headgate.transport.http import PEER
from headgate.transport.http_access import OPERATIONS, Surface
from headgate.transport.http_listener import HttpEndpoint, HttpListener, healthcheck, healthz, pretty
from headgate.transport.http_page import page
from headgate.transport.scrapes import Scrapes

READY_TIMEOUT_S = 0.7
"""Seconds for readiness, below the second that probes usually wait: they learn which worker is silent instead of giving
up.
"""

ASK_TIMEOUT_S = 1.0
"""Seconds for rules and versions: a busy worker needs some ten milliseconds."""

SCRAPE_TIMEOUT_S = 5.0
"""Seconds for metrics: a busy worker with ten thousand rules writes them in steps; a scraper waits for ten seconds."""

_ANSWERING = (WorkerState.SERVING, WorkerState.DRAINING)
_MAY_ANSWER = (WorkerState.STARTING, *_ANSWERING)


@dataclass(frozen=True, slots=True)
class Member:
    """One worker as HTTP sees it: its slot, which says how it is, and the connection to ask it."""

    slot: WorkerSlot
    upstream: Upstream

    @property
    def name(self) -> str:
        return str(self.slot.index)


class WorkersHttp(HttpListener):
    """The HTTP server of a supervisor. It counts the scrapes in which a worker was missing."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        members: Sequence[Member],
        *,
        state: Callable[[], str],
        own_metrics: Callable[[], bytes],
    ) -> None:
        routes = [
            web.get("/", page),
            web.get("/healthz", healthz),
            web.get("/readyz", self._readyz),
            web.get("/healthcheck", self._healthcheck),
            web.get("/rules", self._rules),
            web.get("/metrics", self._metrics),
            web.get("/version", self._version),
            web.get("/regions", self._first),
            web.get("/rlconfig", self._first),
            web.get("/decisions", self._log),
            web.get("/explain", self._log),
            web.get("/top", self._top),
            web.get("/trend", self._trend),
            web.get("/nodes", self._nodes),
            web.get("/bulletins", self._all_bulletins),
            web.post("/json", self._json),
            *(web.post(path, self._operate) for path in OPERATIONS),
        ]
        super().__init__(endpoint, routes)
        self.unscraped: Counter[str] = Counter({member.name: 0 for member in members})
        """Scrapes that a living worker is missing from."""
        self._members = members
        self._state = state
        self._own_metrics = own_metrics
        self._scrapes = Scrapes(self._all_metrics, self.limits.scrape_kept_s)
        self._rotation = 0

    # All workers

    async def _readyz(self, _: web.Request) -> web.Response:
        ready, state, workers = await self._readiness()
        body: dict[str, Any] = {"ready": ready, "state": state}
        if self.access.surface is not Surface.CALLERS:
            body["workers"] = workers
        return web.json_response(body, status=200 if ready else 503)

    async def _healthcheck(self, _: web.Request) -> web.Response:
        return healthcheck((await self._readiness())[0])

    async def _readiness(self) -> tuple[bool, str, list[dict[str, Any]]]:
        """Say whether all are ready, the supervisor's state, and what each worker says."""
        workers = await asyncio.gather(*(_readiness(member) for member in self._members))
        state = self._state()
        return state == WorkerState.SERVING and all(worker["ready"] for worker in workers), state, workers

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._scrapes.text(Format.TEXT), headers={"Content-Type": Format.TEXT})

    async def _all_metrics(self, _: Format) -> bytes:
        asked = self._answering()
        answers = await asyncio.gather(*(self._scrape(member) for member in asked))
        texts = [(member.name, text) for member, text in zip(asked, answers, strict=True) if text is not None]
        # Last, so that it counts those who were silent just now.
        own = self._own_metrics()
        # In a thread: of ten thousand rules in each worker there are megabytes.
        return await asyncio.to_thread(merge_expositions, own, texts)

    async def _scrape(self, member: Member) -> bytes | None:
        answer = await _ask(member, "/metrics", SCRAPE_TIMEOUT_S)
        if answer is None or answer.status != 200:
            self.unscraped[member.name] += 1
            return None
        return answer.body

    async def _top(self, request: web.Request) -> web.Response:
        reports = await self._reports(f"/top?limit={MOST_SHOWN}")
        return web.json_response(merge_tops(reports, asked_limit(request.query)), dumps=pretty)

    async def _trend(self, request: web.Request) -> web.Response:
        grain_s = asked_grain(request.query)
        return web.json_response(merge_trends(await self._reports(f"/trend?grain_s={grain_s}"), grain_s))

    async def _nodes(self, request: web.Request) -> web.Response:
        grain_s = asked_grain(request.query)
        return web.json_response(describe_nodes(await self._bulletins(grain_s), grain_s))

    async def _all_bulletins(self, request: web.Request) -> web.Response:
        return web.json_response(await self._bulletins(asked_grain(request.query)))

    async def _bulletins(self, grain_s: int) -> dict[str, Any]:
        """Return the region's, as the first worker knows them, and each worker's own, newer or while the origin is
        away.
        """
        target = f"/bulletins?grain_s={grain_s}"
        own, (_, first) = await asyncio.gather(self._reports(f"{target}&own=true"), self._first_answer(target))
        told: dict[str, Any] = json.loads(first.body)
        ours = [said for report in own for said in report["bulletins"]]
        runs = {said["run"] for said in ours}
        return {**told, "bulletins": ours + [said for said in told["bulletins"] if said["run"] not in runs]}

    async def _reports(self, target: str) -> list[Any]:
        """Return what each worker that answers says."""
        answers = await asyncio.gather(*(_ask(member, target) for member in self._answering()))
        return [json.loads(answer.body) for answer in answers if answer is not None and answer.status == 200]

    # The first that is ready, and in what the others differ

    async def _version(self, _request: web.Request) -> web.Response:
        first, _, shown = await self._first_and_others("/version", "/version")
        versions = {name: answer["version"] for name, answer in shown.items()}
        body = {**json.loads(first.body), "workers": len(self._members)}
        return web.json_response(_noting(body, "versions", versions))

    async def _rules(self, request: web.Request) -> web.Response:
        first, name, shown = await self._first_and_others(request.path_qs, "/rules?limit=0")
        if first.status != 200:
            return web.Response(status=first.status, body=first.body, headers=first.headers)
        body = json.loads(first.body)
        digests = {name: body["digest"], **{other: answer["digest"] for other, answer in shown.items()}}
        return web.json_response(_noting(body, "digests", digests), dumps=pretty)

    async def _first(self, request: web.Request) -> web.Response:
        """The first worker's answer: it speaks to the other regions, and has the rules that all have."""
        _, answer = await self._first_answer(request.path_qs)
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    async def _log(self, request: web.Request) -> web.Response:
        """The first worker's answer, however long that takes: another one would read the same log once more."""
        for member in self._answering():
            try:
                answer = await member.upstream.get(request.path_qs, self.limits.request_timeout_s)
            except NotReached:
                continue
            except NoAnswer as error:
                raise NotReady(f"worker {member.name}: {error}") from error
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        raise NotReady("no worker is ready")

    async def _first_answer(self, target: str) -> tuple[Member, WorkerAnswer]:
        for member in self._answering():
            answer = await _ask(member, target)
            if answer is not None:
                return member, answer
        raise NotReady("no worker is ready")

    async def _first_and_others(
        self, target: str, brief: str
    ) -> tuple[WorkerAnswer, str, Mapping[str, Mapping[str, Any]]]:
        """The first worker's answer to `target`, its name, and what all answer to `brief`."""
        asked = self._answering()
        member, first = await self._first_answer(target)
        answers = await asyncio.gather(*(_ask(other, brief) for other in asked))
        told = {
            other.name: json.loads(answer.body)
            for other, answer in zip(asked, answers, strict=True)
            if answer is not None and answer.status == 200
        }
        return first, member.name, told

    # The first worker alone: it has the operators' side

    async def _operate(self, request: web.Request) -> web.Response:
        body = await self.read_body(request)
        headers = end_to_end(request.headers)
        headers[PEER] = request.remote or ""
        first = self._members[0]
        try:
            answer = await first.upstream.post(request.path, self.limits.request_timeout_s, headers, body)
        except NoAnswer as error:
            raise NotReady(f"worker {first.name}: {error}") from error
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    # One worker after the other

    async def _json(self, request: web.Request) -> web.Response:
        body = await self.read_body(request)
        headers = end_to_end(request.headers)
        for member in self._round_robin():
            try:
                answer = await member.upstream.post("/json", self.limits.request_timeout_s, headers, body)
            except NotReached:
                continue
            except NoAnswer as error:
                # Not again with another worker: it may have been counted.
                raise NotReady(f"worker {member.name}: {error}") from error
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        raise NotReady("no worker is ready")

    def _round_robin(self) -> Iterable[Member]:
        """Workers to try, in order: those that serve, or those that drain while all do. Each call begins with the next
        worker.
        """
        members = self._answering()
        serving = [member for member in members if member.slot.state is WorkerState.SERVING]
        chosen = serving or members
        self._rotation += 1
        start = self._rotation % len(chosen) if chosen else 0
        return chosen[start:] + chosen[:start]

    def _answering(self) -> list[Member]:
        return [member for member in self._members if member.slot.state in _ANSWERING]


async def _readiness(member: Member) -> dict[str, Any]:
    known = member.slot.describe()
    if member.slot.state not in _MAY_ANSWER:
        return {**known, "ready": False}
    starts = member.slot.state is WorkerState.STARTING
    try:
        answer = await member.upstream.get("/readyz", READY_TIMEOUT_S)
    except NoAnswer as error:
        # One that starts need not have come as far as listening.
        return {**known, "ready": False, **({} if starts else {"error": str(error)})}
    # A worker that starts says what it waits for; it reports over the channel when it is ready.
    return {**known, **json.loads(answer.body), **({"ready": False} if starts else {})}


async def _ask(member: Member, target: str, timeout_s: float = ASK_TIMEOUT_S) -> WorkerAnswer | None:
    try:
        return await member.upstream.get(target, timeout_s)
    except NoAnswer:
        return None


def _noting(body: dict[str, Any], name: str, values: Mapping[str, str]) -> dict[str, Any]:
    """The body, with each worker's value under `name` if they differ, as they may for a moment after a change."""
    return {**body, name: dict(values)} if len(set(values.values())) > 1 else body
