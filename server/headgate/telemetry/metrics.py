"""Metrics that cost the request path nothing, with a number of series that is known beforehand.

Parts keep plain numbers; an instrument is a name, a help text and a function that reads them for a scrape. Labels take
their values from sets that are bounded (outcomes, paths, reasons, the first `MAX_RULES` rules), never from requests.

The readings are shown in two forms: as Prometheus' text for a scrape (exposition.py), and as OpenTelemetry's data for
its exporter (otel_data.py). Neither is made at once: the loop runs other work after each few hundred series, so that
ten thousand rules delay no request. That is why no reader of the SDK collects here: it would read everything in one go,
at 50 µs a series.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource

from headgate import __version__
from headgate.telemetry import otel_data
from headgate.telemetry.exposition import Format, Writer
from headgate.telemetry.histogram import Buckets
from headgate.telemetry.instrument import Instrument, InstrumentKind, ReadHistograms, ReadMany, ReadOne

SERIES_PER_STEP: Final = 200
"""Series that are read and written before the loop runs other work: about half a millisecond."""


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
        """Resource that the metrics describe, with the attributes of OTEL_RESOURCE_ATTRIBUTES."""

    def counter(self, name: str, description: str, read: ReadOne) -> None:
        """A total that only grows; exported as `<name>_total`."""
        self.labelled_counter(name, description, (), lambda: [(read(), {})])

    def labelled_counter(self, name: str, description: str, labels: Sequence[str], read: ReadMany) -> None:
        """A total that only grows for each set of labels; exported as `<name>_total`."""
        self._add(Instrument(name, InstrumentKind.COUNTER, description, tuple(labels), read, unit=_unit(name)))

    def bare_counter(self, name: str, description: str, labels: Sequence[str], read: ReadMany) -> None:
        """A total that is exported under exactly this name, which another project chose."""
        self._add(Instrument(name, InstrumentKind.COUNTER, description, tuple(labels), read, bare=True))

    def gauge(self, name: str, description: str, read: ReadOne) -> None:
        """A value that goes up and down."""
        self.labelled_gauge(name, description, (), lambda: [(read(), {})])

    def labelled_gauge(self, name: str, description: str, labels: Sequence[str], read: ReadMany) -> None:
        """A value that goes up and down for each set of labels."""
        self._add(Instrument(name, InstrumentKind.GAUGE, description, tuple(labels), read, unit=_unit(name)))

    def histogram(self, name: str, description: str, bounds: Sequence[float], read: Callable[[], Buckets]) -> None:
        """A distribution of values over buckets; exported as `<name>_bucket{le}`, `<name>_count` and `<name>_sum`."""
        self.labelled_histogram(name, description, (), bounds, lambda: [(read(), {})])

    def labelled_histogram(
        self, name: str, description: str, labels: Sequence[str], bounds: Sequence[float], read: ReadHistograms
    ) -> None:
        """A distribution of values over buckets, for each set of labels."""
        kind = InstrumentKind.HISTOGRAM
        self._add(Instrument(name, kind, description, tuple(labels), read, tuple(bounds), _unit(name)))

    def render(self, text: Format = Format.TEXT) -> bytes:
        """All series at once, in one of Prometheus' formats."""
        return b"".join(self.pieces(text))

    async def scrape(self, text: Format) -> bytes:
        """All series in one of Prometheus' formats; the loop runs other work between the steps."""
        pieces = []
        for piece in self.pieces(text):
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)

    def pieces(self, text: Format = Format.TEXT) -> Iterator[bytes]:
        """Yield the text a few hundred series at a time; numbers read between two pieces may have grown."""
        writer = Writer(text)
        yield writer.target_info(self.resource.attributes)
        pending: list[bytes] = []
        series = 0
        for instrument in self.instruments:
            for line in writer.family(instrument):
                pending.append(line)
                series += 1
                if series >= SERIES_PER_STEP:
                    yield b"".join(pending)
                    pending, series = [], 0
        yield b"".join(pending) + writer.end()

    def snapshot(self) -> list[MetricsData]:
        """All series at once as OpenTelemetry's data, for an exporter."""
        return list(self.snapshots())

    def snapshots(self) -> Iterator[MetricsData]:
        """Yield OpenTelemetry's data in parts of a few hundred series, each a message of its own for a collector."""
        return otel_data.parts(self.instruments, self.resource, self._start_ns, SERIES_PER_STEP)

    def _add(self, instrument: Instrument) -> None:
        self.instruments.append(instrument)


_UNITS: Final = {"seconds": "s", "bytes": "By"}


def _unit(name: str) -> str:
    """Unit that the end of a name says."""
    return _UNITS.get(name.rpartition("_")[2], "")
