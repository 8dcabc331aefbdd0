"""The service's figures as Prometheus text: requests by status, their latency, and what the pool of judges does."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from eval_harness.pool_records import PoolMetrics

_BUCKETS_S = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)


class _PoolCollector:
    """Reads the pool's figures when it is asked for them."""

    def __init__(self) -> None:
        self.pool = PoolMetrics()

    def collect(self) -> Iterator[Metric]:
        pool = self.pool
        ended = CounterMetricFamily("passwright_evaluations", "Evaluations by how they ended.", labels=["ended"])
        for name in ("complete", "incomplete", "failed", "cancelled"):
            ended.add_metric([name], getattr(pool, name))
        yield ended
        graphs = CounterMetricFamily("passwright_graphs", "Graphs of complete verdicts by outcome.", labels=["outcome"])
        for outcome, count in sorted(pool.outcomes.items()):
            graphs.add_metric([outcome], count)
        yield graphs
        busy = CounterMetricFamily("passwright_judge_busy_seconds", "Seconds spent on evaluations.", labels=["device"])
        for device, seconds in sorted(pool.busy_s.items()):
            busy.add_metric([device], seconds)
        yield busy
        for name, help_text in (
            ("retried", "Tries after the first."),
            ("judges_started", "Judges that were started."),
            ("start_failures", "Judges that could not be started."),
        ):
            yield CounterMetricFamily(f"passwright_{name}", help_text, value=getattr(pool, name))
        for name, help_text in (
            ("queue_depth", "Evaluations that wait."),
            ("num_running", "Evaluations that run."),
            ("num_judges", "Places for judges."),
            ("num_alive", "Judges that serve."),
        ):
            yield GaugeMetricFamily(f"passwright_{name}", help_text, value=getattr(pool, name))


class ServiceMetrics:
    """One service's figures."""

    CONTENT_TYPE = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._pool = _PoolCollector()
        self._registry.register(self._pool)
        self._requests = Counter(
            "passwright_requests", "Requests for evaluations by status.", ["status"], registry=self._registry
        )
        self._latency = Histogram(
            "passwright_evaluation_seconds",
            "Seconds from an accepted request to its verdict, waiting included.",
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._sum_s, self._count = 0.0, 0

    def book_request(self, status: int, seconds: float) -> None:
        """Count a request for an evaluation that was answered."""
        self._requests.labels(str(status)).inc()
        if status == 200:
            self._latency.observe(seconds)
            self._sum_s, self._count = self._sum_s + seconds, self._count + 1

    def mean_seconds(self) -> float:
        """Mean latency of verdicts so far, in seconds; 10 before the first."""
        return self._sum_s / self._count if self._count else 10.0

    def text(self, pool: PoolMetrics) -> bytes:
        """The exposition format."""
        self._pool.pool = pool
        return generate_latest(self._registry)
