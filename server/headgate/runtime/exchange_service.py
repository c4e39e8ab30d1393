"""`headgate exchange`: an exchanger as a process of its own, beside the nodes of its region.

It answers no request of anybody but its peers and its operators, and holds nothing that the origin
does not: any number may run, and any of them may be killed. It reads the rules, and follows them, for one thing: other
regions are heard on the keys that all regions count together, and on no others.
"""

import asyncio
import random
from typing import Final

from aiohttp import web

from headgate import __version__
from headgate.build import BUILD
from headgate.clock import Clock
from headgate.config import Settings
from headgate.errors import ConfigError
from headgate.exchange.instruments import register_peer_file
from headgate.runtime.access import http_endpoints, open_peers, open_tokens
from headgate.runtime.feeds import open_store
from headgate.runtime.identity import make_identity
from headgate.runtime.process import run_process
from headgate.runtime.regions import MEMORY, RegionExchange, key_scopes, limits_of_region, register_exchange
from headgate.runtime.stopping import Stopping
from headgate.runtime.tasks import BackgroundTasks
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.logs import Logs
from headgate.telemetry.metrics import Metrics
from headgate.transport.allocator import bound_allocator
from headgate.transport.http_listener import HttpLimits, HttpListener, addresses_of, healthz
from headgate.transport.scrapes import Scrapes

FORCED_EXIT_S: Final = 0.5


def run_exchange(settings: Settings) -> int:
    """Exchange until told to stop; the exit status. Raises ConfigError when it can't start."""
    if not settings.has_peers:
        raise ConfigError("peer: `headgate exchange` needs at least one (--peer REGION=ADDR), or --peer-file")
    if settings.origin == MEMORY:
        raise ConfigError(
            "origin: `memory://` is inside a node, where no other process reaches it: let `headgate serve` exchange, "
            "or use a Redis origin"
        )
    return run_process(settings, ExchangeService)


class ExchangeService:
    """One exchanging process, from its settings to its exit status."""

    def __init__(self, settings: Settings, logs: Logs, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._logger = logs.logger
        self._identity = make_identity(settings.region, settings.node_id, clock, rng)
        self._metrics = Metrics(node=self._identity.node, region=settings.region)
        self._rules = open_store(settings, clock, rng, self._identity.node, logger=logs.logger)
        self._rules.load_initial()
        self._peers = open_peers(settings, logs.logger)
        self._limits = limits_of_region(settings, self._peers)
        self._peers.listen(self._follow_peers)
        self._exchange = RegionExchange(
            settings,
            self._identity,
            self._peers,
            nodes_origin=None,
            scopes=key_scopes(settings, self._rules, self._limits),
            clock=clock,
            random=rng,
            logger=logs.logger,
        )
        register_exchange(self._metrics, self._exchange, clock)
        register_peer_file(self._metrics, self._peers)
        routes = [
            web.get("/healthz", healthz),
            web.get("/readyz", self._readyz),
            web.get("/regions", self._regions),
            web.get("/metrics", Scrapes(self._metrics.scrape, HttpLimits().scrape_kept_s).serve),
            web.get("/version", self._version),
        ]
        bounded = BoundedLogger(logs.logger, clock)
        self._tasks = BackgroundTasks(bounded)
        self._tokens = open_tokens(settings, logs.logger)
        endpoints = http_endpoints(settings, self._tokens, bounded, max_body_bytes=0)
        self._https = [HttpListener(endpoint, routes) for endpoint in endpoints]
        self._ready = False
        self.stopping = Stopping(
            logs.logger, state=lambda: "exchanging", cut_after_s=FORCED_EXIT_S, before_cut=lambda: None
        )

    async def run(self) -> int:
        """Exchange until `stopping` says otherwise; the exit status."""
        bound_allocator()
        with self.stopping:
            try:
                await self._exchange.start()
                for listener in self._https:
                    await listener.start()
                self._tasks.start("rules", self._rules.watch)
                if self._peers.is_followed:
                    self._tasks.start("peers", self._peers.watch)
                if self._tokens is not None:
                    self._tasks.start("tokens", self._tokens.watch)
                self._ready = True
                self._logger.info(
                    "exchanging",
                    region=self._settings.region,
                    exchange=self._exchange.server.address,
                    **addresses_of(self._https),
                    peers=[peer.region for peer in self._peers.now],
                    version=__version__,
                )
                await self.stopping.wait()
            finally:
                self._ready = False
                await self._exchange.stop()
                await asyncio.gather(*(listener.stop() for listener in self._https), return_exceptions=True)
                await self._tasks.stop()
        self._logger.info("stopped")
        return self.stopping.exit_status

    async def _follow_peers(self) -> None:
        regions = 1 + len(self._peers.now)
        self._limits.follow(regions, active=regions)

    async def _readyz(self, _: web.Request) -> web.Response:
        body = {"ready": self._ready, "exchange": {"address": self._exchange.server.address}}
        return web.json_response(body, status=200 if self._ready else 503)

    async def _regions(self, _: web.Request) -> web.Response:
        return web.json_response({**self._exchange.describe(), "exchanging": True})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"name": "headgate", "version": __version__, "build": BUILD, "region": self._settings.region}
        )
