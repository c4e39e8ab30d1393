"""The feed that rules come from, by the settings."""

from headgate.clock import Clock
from headgate.config.settings import Settings
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.feed import Feed


def open_feed(settings: Settings, clock: Clock) -> Feed:
    """Make the feed that `rules` names."""
    return DirectoryFeed(settings.rules, clock=clock, merge_domains=settings.merge_domains)
