"""Writes docs/configuration.md from the table: `python -m headgate.config.document > docs/configuration.md`.

A test compares the page with what this writes, so a setting can't be added without it.
"""

import sys
from collections.abc import Iterator

from headgate.config.settings import SETTINGS, Setting

_HEAD = """\
# Configuration

<!-- Written by `python -m headgate.config.document > docs/configuration.md` from the table in config/settings.py -->

Every setting is a flag of `headgate serve`, an environment variable and a key of the config file. A flag wins over
the variable, the variable over the file, the file over the default:

```console
$ headgate serve --config headgate.yaml --rules /etc/headgate/rules --grpc 0.0.0.0:8081
$ HEADGATE_RULES=/etc/headgate/rules HEADGATE_LOG_FORMAT=console headgate serve
```

```yaml
# headgate.yaml
rules: /etc/headgate/rules
grpc: unix:/run/headgate/grpc.sock
response_headers: true
drain_s: 10
```

- **Coming from envoyproxy/ratelimit**: with `HEADGATE_COMPAT=ratelimit` in the environment its variables are understood
  too ([migrate.md](migrate.md)).
- **The file** is named by `--config FILE` or `HEADGATE_CONFIG`. It is one YAML mapping; keys are the names below.
- **Addresses** are `host:port` (an IPv6 host in brackets; port 0 takes a free one, which the `serving` log line
  names) or `unix:/path`. A stale socket file is replaced, one in use is refused, and ours is removed at exit.
  Who may connect is `socket_mode`.
- **Relative paths** start from the working directory, wherever they are written.
- **An empty environment variable** counts as not set. Variables that Kubernetes adds for a Service named `headgate`
  (`HEADGATE_SERVICE_HOST`, `HEADGATE_PORT_8081_TCP`, …) are ignored; any other unknown `HEADGATE_…` is an error.
- **Mistakes** are reported all at once, each with its flag, variable or `file:line`, and what is accepted instead;
  the process then ends with status 2 and has touched nothing.
"""

_TAIL = """
## Exit status of `headgate serve`

| status | meaning |
|---|---|
| 0 | stopped by SIGTERM or SIGINT, after draining |
| 1 | could not start: rules with problems and no good snapshot, an address in use, an unusable directory |
| 2 | bad flags, environment or config file |
| 130, 143 | a second SIGINT or SIGTERM: ended at once, without draining; socket files are removed |
"""


def configuration_page() -> str:
    """The whole of docs/configuration.md, as text."""
    return _HEAD + "".join(_sections()) + _TAIL


def _sections() -> Iterator[str]:
    for section in dict.fromkeys(setting.section for setting in SETTINGS):
        yield f"\n## {section}\n\n| setting | flag, variable | default | accepts | meaning |\n|---|---|---|---|---|\n"
        yield from (_line(setting) for setting in SETTINGS if setting.section == section)


def _line(setting: Setting) -> str:
    plain = setting.default in (None, (), "") or setting.default_text == "required"
    default = setting.default_text if plain else f"`{setting.default_text}`"
    how = f"`{setting.flag}`<br>`{setting.env}`" + (_REPEATED if setting.repeatable else "")
    return f"| `{setting.name}` | {how} | {default} | {setting.kind.accepts} | {setting.help} |\n"


_REPEATED = "<br>repeat the flag; commas in the variable; a list in the file"


if __name__ == "__main__":
    sys.stdout.write(configuration_page())
