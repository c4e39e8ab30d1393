"""The feed that rules come from, by the settings."""

import random
from pathlib import Path

from headgate.clock import Clock
from headgate.config.kinds import XDS_SCHEME, pairs_of
from headgate.config.settings import Settings
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.feed import Feed
from headgate.xds.feed import XdsFeed, XdsServer
from headgate.xds.messages import Messages


def open_feed(settings: Settings, clock: Clock, rng: random.Random) -> Feed:
    """Make the feed that `rules` names."""
    if isinstance(settings.rules, Path):
        return DirectoryFeed(settings.rules, clock=clock)
    messages = Messages(settings.xds_protocol, settings.xds_node_id, pairs_of(settings.xds_node_metadata, "="))
    server = _server(settings, settings.rules)
    return XdsFeed(server, messages, clock=clock, rng=rng)


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
