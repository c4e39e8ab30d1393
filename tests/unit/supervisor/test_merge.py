"""Several expositions as one: exact texts, and what a Prometheus parser makes of them."""

from functools import partial

from headgate.supervisor.merge import merge_expositions
from headgate.telemetry.histogram import Buckets
from headgate.telemetry.metrics import Metrics
from prometheus_client.parser import text_string_to_metric_families

ONE = b"""\
# HELP a_total Counts.
# TYPE a_total counter
a_total 1.0
# HELP b Labels.
# TYPE b gauge
b{x="1"} 2.0
b{x="} 7 {\\"\\n,="} 3.0
"""
OTHER = b"""\
# HELP b Labels, in other words.
# TYPE b gauge
b{x="1"} 4.0
b{} 5.0
# HELP c Only here.
# TYPE c gauge
c 6.0 1700000000000
"""


def test_one_head_per_family_and_a_label_in_every_sample() -> None:
    own = b"# HELP b Labels.\n# TYPE b gauge\nb 0.0\n"
    assert merge_expositions(own, [("0", ONE), ("1", OTHER)]).decode() == (
        "# HELP b Labels.\n"
        "# TYPE b gauge\n"
        "b 0.0\n"
        'b{worker="0",x="1"} 2.0\n'
        'b{worker="0",x="} 7 {\\"\\n,="} 3.0\n'
        'b{worker="1",x="1"} 4.0\n'
        'b{worker="1"} 5.0\n'
        "# HELP a_total Counts.\n"
        "# TYPE a_total counter\n"
        'a_total{worker="0"} 1.0\n'
        "# HELP c Only here.\n"
        "# TYPE c gauge\n"
        'c{worker="1"} 6.0 1700000000000\n'
    )


def test_a_parser_reads_it_back() -> None:
    families = list(text_string_to_metric_families(merge_expositions(b"", [("0", ONE), ("1", OTHER)]).decode()))
    assert [(family.name, family.type, len(family.samples)) for family in families] == [
        ("a", "counter", 1),
        ("b", "gauge", 4),
        ("c", "gauge", 1),
    ]
    odd = families[1].samples[1]
    assert (odd.labels, odd.value) == ({"worker": "0", "x": '} 7 {"\n,='}, 3.0)


def test_a_family_never_has_two_types() -> None:
    changed = b"# HELP b Was a gauge.\n# TYPE b counter\nb 9.0\n# HELP d New.\n# TYPE d gauge\nd 1.0\n"
    text = merge_expositions(b"", [("0", ONE), ("1", changed)])
    assert b"9.0" not in text
    assert b'd{worker="1"} 1.0' in text
    assert text.count(b"# TYPE b ") == 1


def test_samples_of_one_family_may_have_several_names() -> None:
    histogram = b'# HELP h Times.\n# TYPE h histogram\nh_bucket{le="+Inf"} 2.0\nh_count 2.0\nh_sum 3.0\n'
    (family,) = text_string_to_metric_families(merge_expositions(b"", [("0", histogram), ("1", histogram)]).decode())
    assert (family.name, len(family.samples)) == ("h", 6)


def test_each_workers_histogram_stays_a_histogram() -> None:
    """So that `sum by (le)` over the workers, and `histogram_quantile` over that, see all of them."""
    texts = []
    for counts in ([1, 2, 0], [0, 3, 4]):
        metrics = Metrics(node="n", region="r")
        metrics.histogram("h_seconds", "Times.", (0.5, 1.0), partial(Buckets, counts, 7.0))
        texts.append(metrics.render())
    _, family = text_string_to_metric_families(merge_expositions(b"", list(zip("01", texts, strict=True))).decode())
    assert (family.name, family.type) == ("h_seconds", "histogram")
    buckets = {(s.labels["worker"], s.labels["le"]): s.value for s in family.samples if s.name == "h_seconds_bucket"}
    assert buckets == {
        ("0", "0.5"): 1,
        ("0", "1.0"): 3,
        ("0", "+Inf"): 3,
        ("1", "0.5"): 0,
        ("1", "1.0"): 3,
        ("1", "+Inf"): 7,
    }
    others = {(s.name, s.labels["worker"]): s.value for s in family.samples if "le" not in s.labels}
    assert others == {
        ("h_seconds_count", "0"): 3,
        ("h_seconds_sum", "0"): 7,
        ("h_seconds_count", "1"): 7,
        ("h_seconds_sum", "1"): 7,
    }


def test_nothing_is_nothing() -> None:
    assert merge_expositions(b"", []) == b""
    assert merge_expositions(b"", [("0", b""), ("1", b"# EOF\n\n")]) == b""
