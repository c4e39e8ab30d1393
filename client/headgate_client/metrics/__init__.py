"""A client's counters for whoever collects them: `prometheus` and `opentelemetry`, each where it is installed.

Both read what the client counts anyway, when they are asked: a call costs nothing more.
"""

from collections.abc import Mapping
from typing import Final, Protocol

CALLS: Final = "headgate_client_calls"
CALLS_HELP: Final = "Calls by outcome; failed_open are those that no limit held."
ERRORS: Final = "headgate_client_errors"
ERRORS_HELP: Final = "Calls that the server did not decide, by why."
UNSETTLED: Final = "headgate_client_unsettled"
UNSETTLED_HELP: Final = "Settlements and refunds that the server was not told: what was charged stands."
NO_RULE: Final = "headgate_client_no_rule"
NO_RULE_HELP: Final = "Calls that no rule applied to: nothing limits them."
DROPPED: Final = "headgate_client_denials_dropped"
DROPPED_HELP: Final = "Denials forgotten before their time because too many were remembered: each is asked for again."
REACHABLE: Final = "headgate_client_reachable"
REACHABLE_HELP: Final = "0 while the breaker is open and nobody is asked."


class Counted(Protocol):
    """A client, of either kind."""

    @property
    def counters(self) -> Mapping[str, int]: ...

    @property
    def errors(self) -> Mapping[str, int]: ...

    @property
    def unsettled(self) -> int: ...

    @property
    def no_rule(self) -> int: ...

    @property
    def denials_dropped(self) -> int: ...

    @property
    def reachable(self) -> bool: ...
