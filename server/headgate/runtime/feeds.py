"""The feed that rules come from, what lies over and under them, and their store, by the settings."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.clock import Clock
from headgate.config.kinds import PLANE_SCHEME, XDS_SCHEME, pairs_of
from headgate.config.settings import Settings
from headgate.endpoint.dialing import ServerTls
from headgate.limiter.limit import Algorithm, OnError
from headgate.plane.feed import PlaneFeed, myself
from headgate.plane.link import PlaneAddress
from headgate.rules.defaults import Defaults
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.feed import Feed
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import OVERLAY
from headgate.rules.store import RuleStore
from headgate.xds.feed import XdsFeed, XdsServer
from headgate.xds.messages import Messages


def open_feed(settings: Settings, clock: Clock, rng: random.Random, node: str, data_dir: Path | None) -> Feed:
    """Make the feed that `rules` names, for a process of that name; what it has to keep goes into `data_dir`."""
    if isinstance(settings.rules, Path):
        return DirectoryFeed(settings.rules, clock=clock)
    if settings.rules.startswith(PLANE_SCHEME):
        plane = plane_address(settings, settings.rules.removeprefix(PLANE_SCHEME))
        me = myself(node, settings.region, relay=False)
        return PlaneFeed(plane, me, data_dir, clock=clock, rng=rng)
    messages = Messages(settings.xds_protocol, settings.xds_node_id, pairs_of(settings.xds_node_metadata, "="))
    server = _server(settings, settings.rules)
    return XdsFeed(server, messages, clock=clock, rng=rng)


def open_store(
    settings: Settings,
    clock: Clock,
    rng: random.Random,
    node: str,
    *,
    logger: Any,
    data_dir: Path | None = None,
    feed_dir: Path | None = None,
    start_empty: bool = False,
    on_rules: Callable[[RuleSet], None] = lambda rules: None,
) -> RuleStore:
    """Make the store of the rules that the settings name, with what lies over and under them.

    The process has the name `node`; its feed keeps what it has to keep in `feed_dir`.
    """
    overlay = settings.rules_overlay
    return RuleStore(
        open_feed(settings, clock, rng, node, feed_dir),
        clock=clock,
        overlay=None if overlay is None else DirectoryFeed(overlay, clock=clock, layer=OVERLAY),
        defaults=Defaults(Algorithm(settings.default_algorithm), OnError(settings.default_on_error)),
        data_dir=data_dir,
        merge_domains=settings.merge_domains,
        accept=settings.rules_accept,
        start_empty=start_empty,
        logger=logger,
        on_rules=on_rules,
    )


def plane_address(settings: Settings, addresses: str) -> PlaneAddress:
    """Addresses of a plane, with the proofs that the settings say."""
    return PlaneAddress(
        addresses=tuple(addresses.split(",")),
        token_file=settings.plane_token_file,
        tls=ServerTls(
            ca=settings.plane_ca,
            cert=settings.plane_cert,
            key=settings.plane_key,
            server_name=settings.plane_server_name,
        )
        if settings.plane_tls
        else None,
    )


def _server(settings: Settings, url: str) -> XdsServer:
    return XdsServer(
        address=url.removeprefix(XDS_SCHEME),
        protocol=settings.xds_protocol,
        headers=tuple(pairs_of(settings.xds_headers, ":").items()),
        tls=ServerTls(
            ca=settings.xds_ca,
            cert=settings.xds_cert,
            key=settings.xds_key,
            server_name=settings.xds_server_name,
        )
        if settings.xds_tls
        else None,
        max_message_bytes=settings.xds_max_message_bytes,
        retry_s=settings.xds_retry_s,
        retry_max_s=settings.xds_retry_max_s,
    )
