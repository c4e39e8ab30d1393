"""The decision log: written by the handler's recorder, read by operators over HTTP and gRPC."""

from collections.abc import Mapping

from headgate.decision_log import instruments
from headgate.decision_log.assembly import DecisionLogging
from headgate.decision_log.recorder import DecisionRecorder
from headgate.decision_log.schema import NodeRun
from headgate.decision_log.service import DecisionsService
from headgate.decision_log.views import DecisionViews
from headgate.limiter.engine import Engine
from headgate.region.engine import RegionalEngine
from headgate.region.node import RegionNode
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms
from headgate.telemetry.metrics import Metrics
from headgate.transport.admin import Method


class DecisionLogRoom(Room):
    """Starts first, so that the first rules are in the log, and closes last."""

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self.logging = DecisionLogging(
            context.settings,
            NodeRun(context.identity.region, context.identity.node, context.identity.run),
            clock=context.clock,
            random=context.random,
            logger=context.logger,
            resource=context.metrics.resource,
        )
        self.history = self.logging.noted(context.logger)
        """The logger for events that an explanation needs later: rules, shards, other regions, operators."""
        self.views = DecisionViews(self.logging.directory, context.clock)

    async def start(self) -> None:
        self.logging.start()

    def recorder_for(self, engine: Engine | RegionalEngine, node: RegionNode | None) -> DecisionRecorder | None:
        """Return the recorder of decisions that `engine` makes; None where there is no log."""
        self.logging.attach(engine, node)
        return self.logging.recorder

    def tick(self) -> None:
        self.logging.flush()

    @property
    def waiting(self) -> bool:
        """True while something is to be flushed soon, even if nobody calls."""
        return self.logging.waiting

    def admin_methods(self) -> Mapping[str, Method]:
        return DecisionsService(self.logging.directory).methods()

    def register(self, metrics: Metrics) -> None:
        instruments.register(metrics, self.logging)

    def close(self, patience_s: float) -> None:
        self.logging.close()
