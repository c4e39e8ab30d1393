"""Prometheus' two text formats, written line by line from plain readings.

Every scraper reads the classic text. OpenMetrics is for scrapers that ask for it: the same series, with exemplars.
Numbers are floats, as both formats have them.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from headgate.telemetry.histogram import Buckets, Exemplar
from headgate.telemetry.instrument import Instrument, InstrumentKind

OPENMETRICS_MEDIA_TYPE: Final = "application/openmetrics-text"


class Format(StrEnum):
    """A format, by its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def format_for(accept: str) -> Format:
    """Format that a scraper asks for in its `Accept` header; the classic text unless it names OpenMetrics."""
    return Format.OPENMETRICS if OPENMETRICS_MEDIA_TYPE in accept else Format.TEXT


class Writer:
    """Writes families in one format."""

    def __init__(self, text: Format) -> None:
        self._open = text is Format.OPENMETRICS

    def target_info(self, attributes: Mapping[str, Any]) -> bytes:
        """Series that names the source: OpenTelemetry's resource attributes, in the place where Prometheus looks for
        them.
        """
        name, kind = ("target", "info") if self._open else ("target_info", "gauge")
        labels = {key.replace(".", "_"): str(value) for key, value in sorted(attributes.items())}
        return f"{_head(name, kind, 'Whose metrics these are; always 1.')}target_info{_braces(labels)} 1.0\n".encode()

    def family(self, instrument: Instrument) -> Iterator[bytes]:
        """Yield the head with the first series, and then a line, or for a histogram a block of lines, for each further
        one.
        """
        name = instrument.exported_name
        head = self._head_of(instrument)
        if instrument.kind is InstrumentKind.HISTOGRAM:
            lines = (self._histogram(instrument, buckets, labels) for buckets, labels in instrument.read())
        else:
            lines = (f"{name}{_braces(labels)} {float(value)!r}\n" for value, labels in instrument.read())  # type: ignore[arg-type]
        for line in lines:
            yield (head + line).encode(errors="replace")
            head = ""

    def _head_of(self, instrument: Instrument) -> str:
        name, kind = instrument.exported_name, str(instrument.kind)
        if self._open and kind == "counter":
            # There a counter's series end in `_total`, and its family does not.
            name, kind = instrument.name, "unknown" if instrument.bare else kind
        return _head(name, kind, instrument.description)

    def end(self) -> bytes:
        """Mark that tells a scraper that it has all."""
        return b"# EOF\n" if self._open else b""

    def _histogram(self, instrument: Instrument, buckets: Any, labels: Mapping[str, str]) -> str:
        assert isinstance(buckets, Buckets)  # noqa: S101 - what a histogram's function reads
        name, lines, so_far = instrument.name, [], 0
        exemplars = buckets.exemplars or (None,) * len(buckets.counts)
        bounds = [*(repr(float(bound)) for bound in instrument.bounds), "+Inf"]
        for bound, count, exemplar in zip(bounds, buckets.counts, exemplars, strict=True):
            so_far += count
            lines.append(
                f"{name}_bucket{_braces({**labels, 'le': bound})} {float(so_far)!r}{self._example(exemplar)}\n"
            )
        lines.append(f"{name}_count{_braces(labels)} {float(so_far)!r}\n")
        lines.append(f"{name}_sum{_braces(labels)} {float(buckets.total)!r}\n")
        return "".join(lines)

    def _example(self, exemplar: Exemplar | None) -> str:
        if exemplar is None or not self._open:
            return ""
        ids = f'trace_id="{exemplar.trace_id}",span_id="{exemplar.span_id}"'
        return f" # {{{ids}}} {exemplar.value!r} {exemplar.at_s:.3f}"


def _head(name: str, kind: str, description: str) -> str:
    text = description.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _braces(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()]) + "}"


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value
