"""One metric as data: its name, kind, labels, and the function that reads it.

`Metrics` (metrics.py) collects instruments; exposition.py and otel_data.py write them in their formats.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headgate.telemetry.histogram import Buckets

Reading = int | float
Labels = Mapping[str, str]
ReadOne = Callable[[], Reading]
ReadMany = Callable[[], Iterable[tuple[Reading, Labels]]]
ReadHistograms = Callable[[], Iterable[tuple[Buckets, Labels]]]


class InstrumentKind(StrEnum):
    """InstrumentKind of instrument: a total that only grows, a value, or a distribution of values."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric: its name, what it means, its labels, and what reads it."""

    name: str
    """Name in Prometheus, but for a counter without `_total`."""
    kind: InstrumentKind
    description: str
    labels: tuple[str, ...]
    read: ReadMany | ReadHistograms
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram, in rising order."""
    unit: str = ""
    """Unit in OpenTelemetry's spelling; Prometheus has it at the end of the name."""
    bare: bool = False
    """True for a counter whose name is given by another project, without `_total`."""

    @property
    def exported_name(self) -> str:
        """Name in a query."""
        return f"{self.name}_total" if self.kind is InstrumentKind.COUNTER and not self.bare else self.name
