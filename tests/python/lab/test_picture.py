"""Pictures of the laboratory: whatever the size and the title, labels do not run into each other nor out of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from flownet.lab.buffer_timeout import TIMEOUTS_MS, BufferTimeout
from flownet.lab.head_of_line import HeadOfLine
from flownet.lab.meters import Count
from flownet.lab.overflow import Overflow
from flownet.lab.picture import apart, least_size
from flownet.lab.propagation import STAGES, Propagation
from flownet.lab.report import drawn
from flownet.lab.result import Result
from flownet.lab.scenario import Scenario
from flownet.lab.skew import Skew
from flownet.lab.trace import Engine, Row, Trace
from flownet.lab.varying import VaryingScenario

SCENARIOS: dict[str, tuple[Scenario, tuple[str, ...], tuple[str, ...]]] = {
    "overflow": (Overflow(), ("producer",), ("consumer",)),
    "head-of-line": (HeadOfLine(), ("A.1", "A.2"), ("B.3", "B.4")),
    "propagation": (Propagation(), ("source",), STAGES[1:]),
    "varying": (VaryingScenario(), ("producer",), ("consumer",)),
    "skew": (Skew(), ("producer",), ("hot", "others")),
}


def sampled(name: str, control: str, *, in_flight: float, dropped: bool) -> Result:
    """A run in which everything ends at nearly the same height, just below the bound: where labels want to be."""
    scenario, sources, sinks = SCENARIOS[name]
    ends = sinks[-1:] if name == "propagation" else sinks
    trace = Trace(name, control, sources, ends, until=scenario.duration() - 3)
    steps = 60
    for step in range(steps + 1):
        seconds = trace.until * step / steps
        sent = int(1.5e6 * seconds)
        taken = max(0, sent - int(in_flight / len(sinks)))
        counts = {task: Count(0, sent) for task in sources}
        counts |= {task: Count(taken, taken) for task in sinks}
        trace.add(seconds, counts, Engine(int(1e5 * seconds) if dropped else 0, 0, 0))
    return scenario.result(trace)


def timed() -> Result:
    """Latencies and rates close together at the upper end."""
    trace = Trace("buffer-timeout", "credit")
    for place, timeout_ms in enumerate(TIMEOUTS_MS):
        label = "full only" if timeout_ms < 0 else f"{timeout_ms} ms"
        rate, us = 2e8 / (1 + place * place / 4), 40_000 / (1 + place**3)
        for measure, value in (("records_per_s", rate), ("p50_us", us), ("p99_us", 3 * us)):
            trace.rows_only.append(Row(trace.scenario, "credit", None, f"{label}, round 1", measure, value))
    return BufferTimeout().result(trace)


def assert_readable(figure: Figure) -> None:
    """No text covers another, and none leaves the picture."""
    figure.canvas.draw()
    texts: list[Any] = figure.findobj(Text)
    hidden = outside(figure)
    shown = [text for text in texts if text.get_visible() and text.get_text() and text not in hidden]
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
    assert len(boxes) > 10
    for (one, box), (other, other_box) in itertools.combinations(boxes, 2):
        across = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        up = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        # The boxes are as high as the highest letter of the font.
        assert across <= 1 or up <= 3, f"{one!r} and {other!r}"
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.x1 <= width, text
        assert box.y0 >= 0, text
        assert box.y1 <= height, text


def outside(figure: Figure) -> set[Text]:
    """Labels of ticks beyond the ends of their axis: matplotlib keeps them, and does not draw them."""
    found = set[Text]()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low <= tick.get_loc() <= high:
                    found |= {tick.label1, tick.label2}
    return found


@pytest.mark.parametrize(
    ("is_small", "title"),
    [(False, None), (True, None), (True, "Who waits for whom, when one of many is slower than all of the others?")],
)
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_labels_do_not_run_into_each_other(name: str, is_small: bool, title: str | None) -> None:
    scenario = SCENARIOS[name][0]
    results = [
        sampled(name, "credit", in_flight=0.9e6, dropped=False),
        sampled(name, "drop", in_flight=1.0e6, dropped=True),
        sampled(name, "tcp", in_flight=4.9e6, dropped=False),
    ]
    size = least_size(len(results)) if is_small else None
    figure = drawn(scenario, results, size, title)
    assert_readable(figure)
    if size:
        assert tuple(figure.get_size_inches()) == size


def test_a_picture_without_a_title_gives_its_place_to_the_panels() -> None:
    results = [sampled("skew", "credit", in_flight=1e6, dropped=False)]
    titled, bare = (drawn(Skew(), results, (8.0, 5.0), title) for title in (None, ""))
    assert bare.axes[0].get_position().height > 1.15 * titled.axes[0].get_position().height
    assert {text.get_text() for text in bare.texts} == {"credit", results[0].verdict, ""}
    assert tuple(bare.get_size_inches()) == (8, 5)


@pytest.mark.parametrize("size", [None, least_size(1), (20.0, 12.0)])
def test_the_curve_of_timeouts_can_be_read(size: tuple[float, float] | None) -> None:
    assert_readable(drawn(BufferTimeout(), [timed()], size))


def test_labels_move_as_little_as_it_takes() -> None:
    assert apart([20, 50], 100) == [20, 50]
    assert apart([49, 51], 100) == [45, 55]
    assert apart([0, 1, 2], 100) == [0, 10, 20]
    assert apart([98, 99], 100) == [90, 100]
    assert apart([5, 6], 8) == [0, 10], "there is no room for both"
