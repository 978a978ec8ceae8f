"""What the benchmark of rollouts and training counts."""

import pytest

from benchmarks.grpo import Happened
from benchmarks.grpo_spans import Measured, Span, busy, union, within

WINDOW = Span(10.0, 20.0)


def test_a_span_that_crosses_an_edge_counts_by_its_share() -> None:
    assert within([Span(8.0, 12.0, 100.0), Span(12.0, 13.0, 7.0), Span(18.0, 28.0, 50.0)], WINDOW) == 50 + 7 + 10
    assert within([Span(0.0, 9.0, 5.0), Span(21.0, 22.0, 5.0)], WINDOW) == 0


def test_spans_at_the_same_time_are_counted_once() -> None:
    spans = [Span(14.0, 16.0), Span(8.0, 12.0), Span(11.0, 13.0), Span(30.0, 31.0)]
    assert union(spans, WINDOW) == [Span(10.0, 13.0), Span(14.0, 16.0)]
    assert busy(spans, WINDOW) == 5.0


def test_requests_that_wait_keep_no_engine_busy() -> None:
    assert busy([Span(10.0, 20.0)], WINDOW, [Span(9.0, 11.0), Span(15.0, 17.0)]) == 7.0


def test_windows_of_an_arm_add_up() -> None:
    arm = Measured()
    arm.add(WINDOW, [Span(10.0, 15.0, 30.0)], [Span(15.0, 20.0, 70.0)], [Span(19.0, 20.0)], cpu=4.0)
    arm.add(Span(30.0, 40.0), [], [Span(35.0, 45.0, 100.0)], flat=2, cpu=2.0)
    assert arm.rate == (30 + 70 + 50) / 20
    figures = arm.figures("x")
    assert figures["x_engine_idle"] == 0.75 and figures["x_trainer_idle"] == 0.5 and figures["x_copying"] == 0.05
    assert figures["x_cpu_s_per_group"] == 4.0 and figures["x_flat"] == 2 and figures["x_step_s"] == 5.0


def test_spans_of_a_daemon_come_from_its_events() -> None:
    said = Happened(
        [
            ("group.sampled", 10_000_000_000, 64, 0.0, 2.0, 0.5, 0, 1),
            ("group.sampled", 11_000_000_000, 32, 0.0, 1.0, 0.0, 1, 1),
            ("engine.paused", 11_500_000_000, 0, 0.1, 0.0, 0.0, 1, 1),
            ("step.completed", 12_000_000_000, 90, 0.4, 0.0, 0.0, 0, 1),
            ("engine.resumed", 12_250_000_000, 0, 0.75, 0.0, 0.0, 1, 1),
            ("step.completed", 13_000_000_000, 90, 0.4, 0.0, 0.0, 0, 0),
        ]
    )
    assert said.sampling == [Span(7.5, 9.5, 64), Span(10.0, 11.0, 32)] and said.flat == [11.0]
    assert said.steps == [pytest.approx(Span(11.6, 12.0, 90))] and said.paused == [Span(11.5, 12.25)]
