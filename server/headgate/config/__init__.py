"""Settings: parsed, validated, frozen. No side effects, no exit, no logging.

`load_settings(flags, environ)` gives `Settings` or raises `SettingsError` with every
problem at once; `SETTINGS` is the table behind flags, environment, file and docs.
"""

from headgate.config.compat import translate
from headgate.config.kinds import Peer
from headgate.config.settings import REQUIRED, SETTINGS, Setting, Settings
from headgate.config.sources import CONFIG_ENV, CONFIG_FLAG, SettingsError, load_settings

__all__ = [
    "CONFIG_ENV",
    "CONFIG_FLAG",
    "REQUIRED",
    "SETTINGS",
    "Peer",
    "Setting",
    "Settings",
    "SettingsError",
    "load_settings",
    "translate",
]
