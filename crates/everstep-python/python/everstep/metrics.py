"""Saves as metrics of Prometheus or OpenTelemetry. Each function gives what `run.writer(on_event=...)` takes.

    run.writer(on_event=everstep.metrics.prometheus(run="gpt"))

Every rank counts its own. The names, as Prometheus has them (OpenTelemetry: dots for underscores, no suffixes of units):

    everstep_saves_total{run, outcome}        committed, failed, skipped
    everstep_save_seconds{run, phase}         blocked, staging, hash, encode, upload, ranks, commit, total
    everstep_save_bytes_total{run, kind}      raw, new, stored
    everstep_requests_total{run}              sent to the store by saves
    everstep_retries_total{run}
    everstep_save_progress_ratio{run}         of the save on its way: 0 to 1
    everstep_committed_step{run}              of the newest commit
    everstep_committed_timestamp_seconds{run} when that was: alert when it gets old
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ._jobs import Event

OnEvent = Callable[[Event], None]

#: Upper bounds of the buckets of durations, in seconds.
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)

#: name -> (kind, description, unit, labels beside the run)
_METRICS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "saves": ("counter", "Saves that ended, by outcome", "", ("outcome",)),
    "save": ("histogram", "Seconds of each phase of a save", "seconds", ("phase",)),
    "save_bytes": ("counter", "Bytes of saves: raw, new to the repository, stored", "", ("kind",)),
    "requests": ("counter", "Requests to the store by saves", "", ()),
    "retries": ("counter", "Requests that were repeated", "", ()),
    "save_progress_ratio": ("gauge", "Part of the save on its way that is done", "", ()),
    "committed_step": ("gauge", "Step of the newest commit", "", ()),
    "committed_timestamp": ("gauge", "Unix time of the newest commit", "seconds", ()),
}

Observation = tuple[str, float, dict[str, str]]


class _Sink(Protocol):
    """Where observations go: metric, value, labels."""

    def record(self, name: str, value: float, labels: dict[str, str]) -> None: ...


def prometheus(registry: Any = None, run: str = "") -> OnEvent:
    """Metrics in a `prometheus_client` registry (default: the global one). Raises ImportError without that package."""
    import prometheus_client

    registry = prometheus_client.REGISTRY if registry is None else registry
    return _recorder(_Prometheus.of(registry), run)


def opentelemetry(meter: Any = None, run: str = "") -> OnEvent:
    """Metrics of an OpenTelemetry meter (default: the one called `everstep`; that raises ImportError without the package
    `opentelemetry-api`)."""
    if meter is None:
        from opentelemetry import metrics

        meter = metrics.get_meter("everstep")
    return _recorder(_OpenTelemetry(meter), run)


def _recorder(sink: _Sink, run: str) -> OnEvent:
    def on_event(event: Event) -> None:
        for name, value, labels in _observations(event):
            sink.record(name, value, {"run": run, **labels})

    return on_event


def _observations(event: Event) -> Iterator[Observation]:
    """What one event says."""
    if event.kind == "progress":
        yield "save_progress_ratio", event.done / event.planned if event.planned else 0.0, {}
    if event.kind not in ("committed", "failed", "skipped"):
        return
    yield "saves", 1, {"outcome": event.kind}
    stats = event.stats
    if stats is not None:
        phases = {"blocked": stats.blocked, "staging": stats.staging, **stats.seconds}
        yield from (("save", seconds, {"phase": phase}) for phase, seconds in phases.items())
        yield "requests", stats.requests, {}
        yield "retries", stats.retries, {}
    if event.kind == "committed":
        if stats is not None:
            sizes = {"raw": stats.raw_bytes, "new": stats.new_raw_bytes, "stored": stats.stored_bytes}
            yield from (("save_bytes", size, {"kind": kind}) for kind, size in sizes.items())
        yield "save_progress_ratio", 1.0, {}
        yield "committed_step", event.step, {}
        yield "committed_timestamp", time.time(), {}


class _Prometheus:
    """Instruments of one registry, which may have each of them only once."""

    _made: weakref.WeakKeyDictionary[Any, _Prometheus] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, registry: Any):
        import prometheus_client as client

        makers = {"counter": client.Counter, "gauge": client.Gauge, "histogram": client.Histogram}
        self._instruments = {}
        for name, (kind, description, unit, labels) in _METRICS.items():
            more = {"buckets": BUCKETS} if kind == "histogram" else {}
            self._instruments[name] = makers[kind](
                f"everstep_{name}", description, ("run", *labels), unit=unit, registry=registry, **more
            )

    @classmethod
    def of(cls, registry: Any) -> _Prometheus:
        with cls._lock:
            if registry not in cls._made:
                cls._made[registry] = cls(registry)
            return cls._made[registry]

    def record(self, name: str, value: float, labels: dict[str, str]) -> None:
        instrument = self._instruments[name].labels(**labels)
        match _METRICS[name][0]:
            case "counter":
                instrument.inc(value)
            case "gauge":
                instrument.set(value)
            case _:
                instrument.observe(value)


class _OpenTelemetry:
    """Instruments of one meter."""

    def __init__(self, meter: Any):
        self._instruments = {}
        for name, (kind, description, unit, _) in _METRICS.items():
            make = getattr(meter, f"create_{kind}")
            more = {"explicit_bucket_boundaries_advisory": BUCKETS} if kind == "histogram" else {}
            units = {"seconds": "s"}.get(unit, "By" if name == "save_bytes" else "1")
            self._instruments[name] = make(f"everstep.{name.replace('_', '.')}", units, description, **more)

    def record(self, name: str, value: float, labels: dict[str, str]) -> None:
        instrument = self._instruments[name]
        match _METRICS[name][0]:
            case "counter":
                instrument.add(value, labels)
            case "gauge":
                instrument.set(value, labels)
            case _:
                instrument.record(value, labels)
