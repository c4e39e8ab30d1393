"""Several Prometheus expositions as one: each worker's samples under a label of their own.

The text is taken apart by lines only. Families keep the HELP and TYPE of the first worker that has them; a later
worker's family with another type is left out, because no family may have two.
"""

from collections.abc import Iterable, Iterator

LABEL = "worker"


class _Family:
    def __init__(self) -> None:
        self.head: list[bytes] = []
        self.type = b""
        self.samples: list[bytes] = []


def merge_expositions(own: bytes, workers: Iterable[tuple[str, bytes]]) -> bytes:
    """`own` as it is, and each worker's text with `worker="<name>"` in every sample."""
    families: dict[bytes, _Family] = {}
    _add(families, own, b"")
    for name, text in workers:
        _add(families, text, f'{LABEL}="{name}"'.encode())
    return b"".join(line + b"\n" for family in families.values() for line in (*family.head, *family.samples))


def _add(families: dict[bytes, _Family], text: bytes, label: bytes) -> None:
    for name, one in _families(text):
        there = families.get(name)
        if there is None:
            there = families[name] = _Family()
            there.head, there.type = one.head, one.type
        if there.type == one.type:
            there.samples += [_labelled(sample, label) for sample in one.samples] if label else one.samples


def _families(text: bytes) -> Iterator[tuple[bytes, _Family]]:
    """A family begins with the first comment that names it, and owns the samples up to the next."""
    name, family = b"", _Family()
    for line in text.split(b"\n"):
        if not line.startswith(b"#"):
            if line:
                family.samples.append(line)
            continue
        words = line.split(b" ", 3)
        if len(words) < 3 or words[1] not in (b"HELP", b"TYPE"):
            continue
        if words[2] != name:
            if family.samples:
                yield name, family
            name, family = words[2], _Family()
        family.head.append(line)
        if words[1] == b"TYPE":
            family.type = words[-1]
    if family.samples:
        yield name, family


def _labelled(sample: bytes, label: bytes) -> bytes:
    """Add the label to a sample. Its name has no brace and no blank, so the first of either ends the name."""
    name_end = len(sample.split(b" ", 1)[0].split(b"{", 1)[0])
    name, rest = sample[:name_end], sample[name_end:]
    if not rest.startswith(b"{"):
        return name + b"{" + label + b"}" + rest
    comma = b"" if rest.startswith(b"{}") else b","
    return name + b"{" + label + comma + rest[1:]
