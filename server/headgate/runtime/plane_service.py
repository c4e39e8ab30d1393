"""`headgate plane`: the root of a plane, or a relay, as a process of its own.

It decides no request. The root's log is in its data directory, and so is a relay's copy of it: a relay serves on while
the root is gone, and can be made the root. Roots that share a store have a copy there too, and serve on without it.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from headgate import __version__
from headgate.build import BUILD
from headgate.clock import Clock
from headgate.config import Settings
from headgate.errors import ConfigError
from headgate.percentages import millionths
from headgate.plane import instruments
from headgate.plane.carrying import Carrying
from headgate.plane.feed import myself
from headgate.plane.marks import StagePlan
from headgate.plane.plane import Plane
from headgate.plane.relay import RuleRelay
from headgate.plane.rights import RightsFile
from headgate.plane.server import PlaneServer
from headgate.plane.service import RulesService
from headgate.plane.shared_root import SharedRoot
from headgate.runtime.access import admin_tls, http_endpoints, open_admins, open_tokens
from headgate.runtime.feeds import plane_address
from headgate.runtime.identity import make_identity
from headgate.runtime.plane_store import open_log
from headgate.runtime.process import run_process
from headgate.runtime.stopping import Stopping
from headgate.runtime.tasks import BackgroundTasks
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.logs import Logs
from headgate.telemetry.metrics import Metrics
from headgate.transport.allocator import bound_allocator
from headgate.transport.http_listener import HttpLimits, HttpListener, addresses_of, healthz
from headgate.transport.scrapes import Scrapes

FORCED_EXIT_S: Final = 0.5
STOP_TIMEOUT_S: Final = 5.0


def run_plane(settings: Settings) -> int:
    """Serve a plane until told to stop; the exit status. Raises ConfigError when it can't start."""
    if settings.admin_grpc is None:
        raise ConfigError("admin_grpc: `headgate plane` needs it (--listen ADDR): nodes and operators call there")
    return run_process(settings, PlaneProcess)


def stage_plan(settings: Settings) -> StagePlan:
    """Return the stages of rollouts as they are set."""
    return StagePlan(
        tuple(millionths(share) for share in settings.rollout_stages.split(",")),
        int(1000 * settings.rollout_stage_s),
        millionths(settings.rollout_expect_denials),
    )


class PlaneProcess:
    """One plane, from its settings to its exit status."""

    def __init__(self, settings: Settings, logs: Logs, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._logger = logs.logger
        self._identity = make_identity(settings.region, settings.node_id, clock, rng)
        self._metrics = Metrics(node=self._identity.node, region=settings.region)
        bounded = BoundedLogger(logs.logger, clock)
        self._admins = open_admins(settings, logs.logger)
        rights = settings.plane_rights_file
        self._rights = None if rights is None else RightsFile(str(rights), logs.logger)
        self._tokens = open_tokens(settings, logs.logger)
        log, mirrored = open_log(settings, clock, rng)
        self._plane = Plane(log, clock)
        self._shared: SharedRoot | None = None
        if mirrored is not None:
            self._shared = SharedRoot(self._plane, mirrored, self._identity.node, rng, logs.logger)
            instruments.register_store(self._metrics, self._shared)
        self._relay: RuleRelay | None = None
        if settings.upstream is not None:
            me = myself(self._identity.node, settings.region, relay=True)
            self._relay = RuleRelay(self._plane, plane_address(settings, settings.upstream), me, rng, logs.logger)
        self.server = PlaneServer(
            str(settings.admin_grpc),
            self._plane,
            RulesService(self._plane, self._rights, logs.logger, stage_plan(settings)),
            self._admins,
            bounded,
            admin_tls(settings, logs.logger),
            int(settings.socket_mode, 8),
        )
        instruments.register(self._metrics, self._plane)
        routes = [
            web.get("/healthz", healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", Scrapes(self._metrics.scrape, HttpLimits().scrape_kept_s).serve),
            web.get("/version", self._version),
        ]
        self._tasks = BackgroundTasks(bounded)
        endpoints = http_endpoints(settings, self._tokens, bounded, max_body_bytes=0)
        self._https = [HttpListener(endpoint, routes) for endpoint in endpoints]
        self._serving = False
        self.stopping = Stopping(
            logs.logger, state=lambda: "serving", cut_after_s=FORCED_EXIT_S, before_cut=lambda: None
        )  # fmt: skip

    async def run(self) -> int:
        """Serve until `stopping` says otherwise; the exit status."""
        bound_allocator()
        with self.stopping:
            try:
                await self._start()
                await self.stopping.wait()
            finally:
                await self._stop()
        self._logger.info("stopped")
        return self.stopping.exit_status

    async def _start(self) -> None:
        await self.server.start()
        for listener in self._https:
            await listener.start()
        for name, followed in (("tokens", self._admins.tokens), ("rights", self._rights), ("callers", self._tokens)):
            if followed is not None:
                self._tasks.start(name, followed.watch)
        if self._relay is not None:
            self._tasks.start("upstream", self._relay.follow)
        else:
            self._tasks.start("rollouts", Carrying(self._plane, self._logger).run)
        if self._shared is not None:
            self._tasks.start("store", self._shared.follow)
        self._serving = True
        at = self._plane.log.position
        self._logger.info(
            "plane_serving",
            admin_grpc=self.server.address,
            **addresses_of(self._https),
            upstream=self._plane.upstream,
            plane=at.plane,
            index=at.index,
            rules=at.version,
            node=self._identity.node,
            version=__version__,
        )

    async def _stop(self) -> None:
        self._serving = False
        await self.server.stop(0 if self.stopping.forced else STOP_TIMEOUT_S)
        await asyncio.gather(*(listener.stop() for listener in self._https), return_exceptions=True)
        await self._tasks.stop()
        self._plane.close()

    # HTTP

    async def _readyz(self, _: web.Request) -> web.Response:
        """Ready is a plane that listens and, where its log is a copy, one that has had something to hand on."""
        ready = self._serving and (self._plane.fresh_s is None or self._has_something())
        return web.json_response({"ready": ready, "plane": self._describe()}, status=200 if ready else 503)

    def _has_something(self) -> bool:
        """Return true if there are rules, or if a root among several knows that there are none yet."""
        reached = self._shared is not None and not self._shared.reason
        return self._plane.log.position.index > 0 or (reached and self._plane.log.position.plane != "")

    def _describe(self) -> Mapping[str, Any]:
        plane, at = self._plane, self._plane.log.position
        described: dict[str, Any] = {
            "role": "relay" if plane.upstream else "root",
            "plane": at.plane,
            "index": at.index,
            "version": at.version,
            "rules": plane.log.rules,
            "followers": len(plane.followers()),
        }
        if self._shared is not None:
            described["store"] = {"reached": not self._shared.reason, "reason": self._shared.reason}
        if self._relay is not None:
            link = self._relay.link.state
            described |= {"upstream": plane.upstream, "connected": link.connected, "reason": link.reason}
        return described

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"name": "headgate", "version": __version__, "build": BUILD})
