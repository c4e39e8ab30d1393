"""Metrics that cost the request path nothing, with a number of series that is known beforehand.

Whoever counts keeps plain numbers; an instrument is a name, a help text and a function that
reads them when somebody looks. Labels take their values from sets that are bounded (outcomes,
paths, reasons, the first so many rules), never from requests.

The same readings are shown in two ways: as Prometheus' text for a scrape (exposition.py), and as
OpenTelemetry's data for its exporter (otel_data.py). Neither is made at once: after each
few hundred series the loop gets its turn, so that ten thousand rules stall nobody. That is why no
reader of the SDK collects here: it would read everything in one go, at 50 µs a series.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource

from headgate import __version__
from headgate.telemetry import otel_data
from headgate.telemetry.exposition import Format, Writer, format_for
from headgate.telemetry.histogram import Buckets

Reading = int | float
Labels = Mapping[str, str]
ReadOne = Callable[[], Reading]
ReadMany = Callable[[], Iterable[tuple[Reading, Labels]]]
ReadHistograms = Callable[[], Iterable[tuple[Buckets, Labels]]]

SERIES_PER_TURN: Final = 200
"""Series that are read and written before the loop gets its turn again: about half a millisecond."""


class Kind(StrEnum):
    """What an instrument measures: a total that only grows, a value, or how values spread."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric: its name, what it means, its labels, and what reads it."""

    name: str
    """As Prometheus has it, but for a counter without `_total`."""
    kind: Kind
    description: str
    labels: tuple[str, ...]
    read: ReadMany | ReadHistograms
    bounds: tuple[float, ...] = ()
    """Of a histogram: its upper bounds, in rising order."""
    unit: str = ""
    """As OpenTelemetry writes it; Prometheus has it at the end of the name."""
    bare: bool = False
    """A counter whose name somebody else has chosen, without `_total`."""

    @property
    def exported_name(self) -> str:
        """As a query names it."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER and not self.bare else self.name


class Metrics:
    """The metrics of one process: parts register functions that read numbers, scrapes and pushes call them."""

    def __init__(self, *, node: str, region: str) -> None:
        self.instruments: list[Instrument] = []
        self._start_ns = time.time_ns()
        self.resource = Resource.create(
            {
                "service.name": "headgate",
                "service.version": __version__,
                "service.instance.id": node,
                "headgate.region": region,
            }
        )
        """Whose metrics they are: with what OTEL_RESOURCE_ATTRIBUTES adds."""

    def counter(self, name: str, description: str, read: ReadOne) -> None:
        """A total that only grows; exported as `<name>_total`."""
        self.labelled_counter(name, description, (), lambda: [(read(), {})])

    def labelled_counter(self, name: str, description: str, labels: Sequence[str], read: ReadMany) -> None:
        """A total that only grows for each set of labels; exported as `<name>_total`."""
        self._add(Instrument(name, Kind.COUNTER, description, tuple(labels), read, unit=_unit(name)))

    def bare_counter(self, name: str, description: str, labels: Sequence[str], read: ReadMany) -> None:
        """A total that is exported under the very name: for those that others chose."""
        self._add(Instrument(name, Kind.COUNTER, description, tuple(labels), read, bare=True))

    def gauge(self, name: str, description: str, read: ReadOne) -> None:
        """A value that goes up and down."""
        self.labelled_gauge(name, description, (), lambda: [(read(), {})])

    def labelled_gauge(self, name: str, description: str, labels: Sequence[str], read: ReadMany) -> None:
        """A value that goes up and down for each set of labels."""
        self._add(Instrument(name, Kind.GAUGE, description, tuple(labels), read, unit=_unit(name)))

    def histogram(self, name: str, description: str, bounds: Sequence[float], read: Callable[[], Buckets]) -> None:
        """How values spread over buckets; exported as `<name>_bucket{le}`, `<name>_count` and `<name>_sum`."""
        self.labelled_histogram(name, description, (), bounds, lambda: [(read(), {})])

    def labelled_histogram(
        self, name: str, description: str, labels: Sequence[str], bounds: Sequence[float], read: ReadHistograms
    ) -> None:
        """How values spread over buckets, for each set of labels."""
        kind = Kind.HISTOGRAM
        self._add(Instrument(name, kind, description, tuple(labels), read, tuple(bounds), _unit(name)))

    def render(self, text: Format = Format.TEXT) -> bytes:
        """All series at once, in one of Prometheus' formats."""
        return b"".join(self.pieces(text))

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """The text that a scraper asks for, and its content type; the loop gets its turns meanwhile."""
        text, pieces = format_for(accept), []
        for piece in self.pieces(text):
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces), text

    def pieces(self, text: Format = Format.TEXT) -> Iterator[bytes]:
        """The same, a few hundred series at a time: what is read between two pieces may have grown."""
        writer = Writer(text)
        yield writer.target_info(self.resource.attributes)
        pending: list[bytes] = []
        series = 0
        for instrument in self.instruments:
            for line in writer.family(instrument):
                pending.append(line)
                series += 1
                if series >= SERIES_PER_TURN:
                    yield b"".join(pending)
                    pending, series = [], 0
        yield b"".join(pending) + writer.end()

    def snapshot(self) -> list[MetricsData]:
        """All series at once as OpenTelemetry's data, for an exporter."""
        return list(self.snapshots())

    def snapshots(self) -> Iterator[MetricsData]:
        """The same, in parts of a few hundred series: each is a message of its own for a collector."""
        return otel_data.parts(self.instruments, self.resource, self._start_ns, SERIES_PER_TURN)

    def _add(self, instrument: Instrument) -> None:
        self.instruments.append(instrument)


_UNITS: Final = {"seconds": "s", "bytes": "By"}


def _unit(name: str) -> str:
    """What the end of a name says."""
    return _UNITS.get(name.rpartition("_")[2], "")
