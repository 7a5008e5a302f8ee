"""The main job, against a plain Counter, on text that nobody here wrote."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

import flownet as fn
from flownet.cli.demo import LiveWindows, Text, Totals, count_words
from flownet.observation.progress import Progress


@pytest.fixture(scope="module")
def text() -> Text:
    """A tenth of the standard library, taken over all of it."""
    whole = Text.of_standard_library()
    return Text("every tenth file", whole.files[::10], whole.files[::10])


@pytest.fixture(scope="module")
def expected(text: Text) -> Counter[str]:
    return Counter(word for line in text.lines() for word in line.split())


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_counts_over_windows_add_up_to_those_of_a_counter(
    text: Text, expected: Counter[str], workers: int, parallelism: int
) -> None:
    env = fn.Environment(parallelism=parallelism)
    totals = Totals()
    count_words(env.read_text(text.files, errors="replace"), fn.Tumbling("50ms")).collect(into=totals)
    env.execute(workers)
    assert totals.counts == expected


def test_counts_are_right_when_memory_is_scarce(text: Text, expected: Counter[str], workers: int) -> None:
    env = fn.Environment(parallelism=2, network_memory="256KiB", segment_size="2KiB", buffer_timeout=None)
    totals = Totals()
    count_words(env.read_text(text.files, errors="replace"), fn.Tumbling("5s")).collect(into=totals)
    env.execute(workers)
    assert totals.counts == expected


def test_the_standard_library_is_tens_of_megabytes_of_text_without_what_was_installed() -> None:
    text = Text.of_standard_library()
    assert len(text.files) > 100
    assert all(name.endswith(".py") for name in text.files)
    assert not any("site-packages" in name for name in text.files)


def test_totals_forget_rare_words_where_memory_must_stay_flat() -> None:
    totals = Totals(max_words=10)
    for turn in range(1000):
        totals.extend([("frequent", 3), (f"rare {turn}", 1)])
    assert len(totals.counts) <= 10
    assert totals.counts["frequent"] == 3000
    assert totals.words == 4000


def test_live_windows_are_shown_once_their_results_stop_coming(capsys: pytest.CaptureFixture[str]) -> None:
    windows, progress = LiveWindows(top=2), Progress(sys.stderr)
    windows.extend([("a", 1), ("b", 3)])
    windows.show_if_quiet(progress)
    windows.extend([("a", 1), ("c", 1)])
    windows.show_if_quiet(progress)
    assert capsys.readouterr().out == ""
    windows.show_if_quiet(progress)
    windows.show_if_quiet(progress)
    assert capsys.readouterr().out == "6 words: b 3  a 2\n"
    assert windows.counts == Counter(a=2, b=3, c=1)
