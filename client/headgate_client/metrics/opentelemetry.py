"""For OpenTelemetry: `instrument(limiter, "search")` adds instruments to the global meter provider, or to a meter."""

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

from headgate_client.metrics import (
    CALLS,
    CALLS_HELP,
    DROPPED,
    DROPPED_HELP,
    ERRORS,
    ERRORS_HELP,
    NO_RULE,
    NO_RULE_HELP,
    REACHABLE,
    REACHABLE_HELP,
    UNSETTLED,
    UNSETTLED_HELP,
    Counted,
)


def instrument(limiter: Counted, name: str = "default", *, meter: Meter | None = None) -> None:
    """Once for each client; `name` tells it from the others."""
    chosen = meter or get_meter("headgate_client")

    def calls(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(n, {"client": name, "outcome": outcome}) for outcome, n in limiter.counters.items()]

    def errors(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(n, {"client": name, "status": status}) for status, n in limiter.errors.items()]

    def unsettled(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(limiter.unsettled, {"client": name})]

    def no_rule(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(limiter.no_rule, {"client": name})]

    def dropped(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(limiter.denials_dropped, {"client": name})]

    def reachable(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(int(limiter.reachable), {"client": name})]

    chosen.create_observable_counter(CALLS, [calls], description=CALLS_HELP)
    chosen.create_observable_counter(ERRORS, [errors], description=ERRORS_HELP)
    chosen.create_observable_counter(UNSETTLED, [unsettled], description=UNSETTLED_HELP)
    chosen.create_observable_counter(NO_RULE, [no_rule], description=NO_RULE_HELP)
    chosen.create_observable_counter(DROPPED, [dropped], description=DROPPED_HELP)
    chosen.create_observable_gauge(REACHABLE, [reachable], description=REACHABLE_HELP)
