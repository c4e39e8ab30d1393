"""The rule store with where its rules come from, as the settings say: a directory, or an xDS server."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headgate.clock import Clock
from headgate.config import Settings
from headgate.config.kinds import XDS_SCHEME, pairs_of
from headgate.rules.directory import RulesSource, SourceFile
from headgate.rules.store import RuleStore
from headgate.runtime.room import Task
from headgate.xds.feed import XdsFeed, XdsServer
from headgate.xds.messages import Messages
from headgate.xds.stream import Resources
from headgate.xds.text import shown_name


class StoreSink:
    """Hands sets of an xDS server to the store, each resource as the file `xds/<name>`."""

    def __init__(self, store: RuleStore) -> None:
        self._store = store

    async def put(self, resources: Resources) -> Sequence[str]:
        named = {f"xds/{shown_name(name)}": text for name, text in resources.items()}
        problems = await self._store.offer([SourceFile(path, text, path) for path, text in named.items()])
        return [str(problem) for problem in problems]

    def looked(self, trouble: str) -> None:
        self._store.look(trouble)


def open_rules(
    settings: Settings,
    *,
    clock: Clock,
    rng: random.Random,
    logger: Any,
    data_dir: Path | None = None,
    on_source: Callable[[RulesSource], None] = lambda source: None,
) -> tuple[RuleStore, Task]:
    """Return a store with its first rules, and the task that follows their source. Raises RulesError."""
    store = RuleStore(
        settings.rules,
        clock=clock,
        data_dir=data_dir,
        merge_domains=settings.merge_domains,
        logger=logger,
        on_source=on_source,
    )
    if isinstance(settings.rules, Path):
        store.load_initial()
        return store, store.watch
    store.load_saved()
    messages = Messages(settings.xds_protocol, settings.xds_node_id, pairs_of(settings.xds_node_metadata, "="))
    return store, XdsFeed(_server(settings, settings.rules), messages, StoreSink(store), clock, rng, logger).run


def _server(settings: Settings, url: str) -> XdsServer:
    return XdsServer(
        address=url.removeprefix(XDS_SCHEME),
        protocol=settings.xds_protocol,
        headers=tuple(pairs_of(settings.xds_headers, ":").items()),
        tls=settings.xds_tls,
        ca=settings.xds_ca,
        cert=settings.xds_cert,
        key=settings.xds_key,
        server_name=settings.xds_server_name,
        max_message_bytes=settings.xds_max_message_bytes,
        retry_s=settings.xds_retry_s,
        retry_max_s=settings.xds_retry_max_s,
    )
