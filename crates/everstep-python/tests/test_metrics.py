"""Events become metrics of Prometheus and OpenTelemetry."""

import pytest

import everstep
from everstep import Event, Stats, metrics

STATS = Stats(
    blocked=0.02, staging=0.01, seconds={"upload": 1.5, "total": 2.0},
    raw_bytes=1000, new_raw_bytes=600, stored_bytes=500, requests=7, retries=1,
)
EVENTS = [
    Event("staged", 10, stats=STATS),
    Event("progress", 10, 250, 1000),
    Event("committed", 10, 1000, 1000, STATS),
    Event("skipped", 11),
    Event("failed", 12, stats=STATS, error=everstep.Unreachable("no store")),
]


def in_prometheus(registry, run="gpt"):
    on_event = metrics.prometheus(registry, run)
    return on_event, lambda name, **labels: registry.get_sample_value(name, {"run": run, **labels})


def test_prometheus_counts_what_events_say():
    client = pytest.importorskip("prometheus_client")
    on_event, value = in_prometheus(client.CollectorRegistry())
    for event in EVENTS:
        on_event(event)
    outcomes = [value("everstep_saves_total", outcome=outcome) for outcome in ("committed", "failed", "skipped")]
    assert outcomes == [1, 1, 1]
    assert value("everstep_save_seconds_sum", phase="upload") == 3.0
    assert value("everstep_save_seconds_count", phase="blocked") == 2
    assert value("everstep_save_bytes_total", kind="raw") == 1000, "a failed save stores nothing"
    assert value("everstep_save_bytes_total", kind="stored") == 500
    assert (value("everstep_requests_total"), value("everstep_retries_total")) == (14, 2)
    assert value("everstep_committed_step") == 10
    assert value("everstep_committed_timestamp_seconds") > 1.7e9
    assert value("everstep_save_progress_ratio") == 1.0


def test_prometheus_shows_progress_of_the_save_on_its_way():
    client = pytest.importorskip("prometheus_client")
    on_event, value = in_prometheus(client.CollectorRegistry())
    on_event(EVENTS[1])
    assert value("everstep_save_progress_ratio") == 0.25
    assert value("everstep_committed_step") is None


def test_two_runs_share_one_prometheus_registry():
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    (one, value_of_one), (other, value_of_other) = in_prometheus(registry, "one"), in_prometheus(registry, "other")
    one(EVENTS[2])
    other(EVENTS[3])
    assert value_of_one("everstep_saves_total", outcome="committed") == 1
    assert value_of_one("everstep_saves_total", outcome="skipped") is None
    assert value_of_other("everstep_saves_total", outcome="skipped") == 1


def points(reader):
    """name -> {label: value}, of a reader of OpenTelemetry."""
    found = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    labels = {key: item for key, item in point.attributes.items() if key != "run"}
                    value = point.sum if hasattr(point, "sum") else point.value
                    found.setdefault(metric.name, {})[next(iter(labels.values()), "")] = value
    return found


def test_opentelemetry_counts_what_events_say():
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    on_event = metrics.opentelemetry(provider.get_meter("test"), "gpt")
    for event in EVENTS:
        on_event(event)
    found = points(reader)
    provider.shutdown()
    assert found["everstep.saves"] == {"committed": 1, "failed": 1, "skipped": 1}
    assert found["everstep.save"] == {"blocked": 0.04, "staging": 0.02, "upload": 3.0, "total": 4.0}
    assert found["everstep.save.bytes"] == {"raw": 1000, "new": 600, "stored": 500}
    assert (found["everstep.requests"][""], found["everstep.retries"][""]) == (14, 2)
    assert found["everstep.committed.step"][""] == 10


def test_saves_of_a_writer_are_counted(tmp_path):
    client = pytest.importorskip("prometheus_client")
    on_event, value = in_prometheus(client.CollectorRegistry())
    run = everstep.Repository(str(tmp_path), create=True).run("gpt")
    with run.writer(on_event=on_event) as writer:
        writer.save(1, {"x": [1, 2, 3]})
        writer.save_async(2, {"x": [1, 2, 4]}).result(60)
    assert value("everstep_saves_total", outcome="committed") == 2
    assert value("everstep_committed_step") == 2
    assert value("everstep_requests_total") > 0


def test_neither_package_is_imported_with_everstep():
    import subprocess
    import sys

    check = "import everstep.metrics, sys; sys.exit(any(n in sys.modules for n in ('prometheus_client', 'opentelemetry')))"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
