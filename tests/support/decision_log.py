"""A handler with a decision log, on a clock that a test moves: what a server does, without its sockets."""

import random
from pathlib import Path
from typing import Any

from headgate.clock import Clock
from headgate.decision_log.expander import Expander
from headgate.decision_log.log import DecisionLog
from headgate.decision_log.recorder import DecisionRecorder, row_writer
from headgate.decision_log.rule_contents import save_content
from headgate.decision_log.schema import DecisionRecord, Event, NodeRun
from headgate.decision_log.segments import Bounds, ReadStats, SegmentSink, read_segments
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.limiter.overrides import Overrides
from headgate.limiter.scopes import LimitsOfRegion
from headgate.pending import answer_future
from headgate.region.engine import RegionalEngine
from headgate.region.node import RegionNode
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.ruleset import RuleSet
from headgate.rules.store import RuleStore
from headgate.telemetry.history import NotedLogger
from headgate_client.values import Descriptor, encode_request
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

BOUNDS = Bounds(1 << 30, 1 << 40)


def read_all(data_dir: Path) -> list[DecisionRecord | Event]:
    """Everything that the log of a data directory holds."""
    return list(read_segments(data_dir, ReadStats()))


def decisions(data_dir: Path) -> list[DecisionRecord]:
    """Its decisions."""
    return [entry for entry in read_all(data_dir) if isinstance(entry, DecisionRecord)]


class LoggedNode:
    """A node on its own: rules from a directory, decisions into a data directory."""

    def __init__(
        self,
        directory: Path,
        rules: str,
        clock: Clock,
        *,
        allowances: int = 1000,
        values: bool = False,
        run: int = 1,
        name: str = "one",
        settings: AnswerSettings | None = None,
        limits: LimitsOfRegion | None = None,
    ) -> None:
        self.clock: Any = clock
        self.node: RegionNode | None = None
        self._allowances, self._run, self._settings, self._limits = allowances, run, settings, limits
        self.overrides = Overrides()
        self.data_dir = directory / "data"
        self.rules_dir = directory / "rules"
        self.rules_dir.mkdir(exist_ok=True)
        source = NodeRun("local", name, run)
        self.log = DecisionLog(
            [SegmentSink(self.data_dir, source, BOUNDS)], expand=Expander(values=values), clock=clock, source=source
        )
        shadow_mode = settings is not None and settings.shadow_mode
        self.log.note("start", clock.now_ms(), origin="memory", allowances=allowances, shadow_mode=shadow_mode)
        self.engine: Engine | RegionalEngine = Engine(clock, max_cells=1000)
        self.store: RuleStore | None = None
        self.use(rules)
        self._handle(self.engine)
        self.log.start()

    def join(self, node: RegionNode) -> None:
        """From now on it is a node of a region, and not on its own."""
        self.node, self.engine = node, node.engine
        self._handle(node)

    def noted(self, logger: Any) -> Any:
        """The logger of a part whose events are history."""
        return NotedLogger(logger, lambda kind, fields: self.log.note(kind, self.clock.now_ms(), **fields))

    def _handle(self, decider: Any) -> None:
        write = row_writer(self.engine, self.node, self.clock)
        self.handler = RateLimitHandler(
            rules=lambda: self.rules,
            engine=decider,
            random=random.Random(4),
            settings=self._settings or AnswerSettings(),
            limits=self._limits,
            overrides=self.overrides,
            record=DecisionRecorder(self.log, write, allowances=self._allowances, random=random.Random(self._run)),
        )

    def use(self, rules: str) -> None:
        """Bring other rules into force."""
        (self.rules_dir / "rules.yaml").write_text(rules)
        before = self.store
        self.store = RuleStore(DirectoryFeed(self.rules_dir, clock=self.clock), clock=self.clock, on_rules=self._keep)
        if before is not None:
            self.store.current = before.current
        self.store.load_initial()
        self.rules = self.store.current
        version = str(self.rules.version)
        self.log.note("rules_in_force", self.clock.now_ms(), version=version, rules=self.rules.count)

    def _keep(self, rules: RuleSet) -> None:
        files = [(file.name, file.data) for file in rules.files()]
        save_content(self.data_dir, rules.version.digest, files, merge_domains=False)

    def ask(self, *descriptors: dict[str, str], domain: str = "d", cost: int = 1) -> RateLimitResponse:
        """Send one request; its answer."""
        request = encode_request(domain, [Descriptor(entries) for entries in descriptors], cost)
        answer = self.handler.answer(request.SerializeToString())
        assert isinstance(answer, bytes)
        return RateLimitResponse.FromString(answer)

    async def ask_region(self, *descriptors: dict[str, str], domain: str = "d", cost: int = 1) -> RateLimitResponse:
        """The same where somebody may have to be asked."""
        request = encode_request(domain, [Descriptor(entries) for entries in descriptors], cost)
        answer = self.handler.answer(request.SerializeToString())
        return RateLimitResponse.FromString(await answer_future(answer))

    def stop(self) -> None:
        """End the log in good order."""
        self.log.note("stop", self.clock.now_ms())
        self.log.close(10)
