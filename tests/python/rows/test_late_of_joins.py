"""Late rows of joins as side outputs: each row has met those of its key that were on time, or is late and whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

import flownet as fn
from flownet.errors import PlanError
from flownet.testing import Record, Watermark

LEFT, RIGHT = fn.OutputTag("left"), fn.OutputTag("right")
TAGS: dict[str, Any] = {"side_output_left_late_data": LEFT, "side_output_right_late_data": RIGHT}
COLUMNS = {"side": "int64!", "key": "utf8!", "ms": "int64!", "value": "int64!"}

Row = dict[str, Any]
Meet = Callable[[list[Row], list[Row]], list[tuple[int, int | None]]]


def some_rows(seed: int, count: int) -> list[tuple[int, str, int, int]]:
    """Give rows of two sides, of which many come after later ones."""
    chance = random.Random(seed)
    return [
        (chance.randrange(2), chance.choice("abc"), 5 * number - chance.randrange(200), number)
        for number in range(count)
    ]


def near(lefts: list[Row], rights: list[Row]) -> list[tuple[int, int | None]]:
    return [(a["value"], b["value"]) for a in lefts for b in rights if -30 <= b["ms"] - a["ms"] <= 50]


def in_one_window(lefts: list[Row], rights: list[Row]) -> list[tuple[int, int | None]]:
    return [(a["value"], b["value"]) for a in lefts for b in rights if a["ms"] // 100 == b["ms"] // 100]


def newest(lefts: list[Row], rights: list[Row]) -> list[tuple[int, int | None]]:
    pairs: list[tuple[int, int | None]] = []
    for row in lefts:
        versions = [version for version in rights if version["ms"] <= row["ms"]]
        # Of several at one time the last that came.
        found = max(versions, key=lambda version: (version["ms"], version["value"]), default=None)
        pairs.append((row["value"], None if found is None else found["value"]))
    return pairs


JOINS: dict[str, tuple[Callable[[Any, Any], fn.Rows], Meet]] = {
    "interval": (lambda a, b: a.interval_join(b, "-30ms", "50ms", **TAGS), near),
    "window": (lambda a, b: a.join(b, fn.Tumbling("100ms"), **TAGS), in_one_window),
    "as of": (lambda a, b: a.as_of_join(b, how="left", **TAGS), newest),
}


def shown(rows: Any) -> list[Row]:
    return cast(list[Row], rows.to_arrow().to_pylist())


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("state_backend", ["memory", "disk"])
def test_each_row_meets_those_on_time_or_is_late_and_whole(name: str, state_backend: Any, workers: int) -> None:
    join, meet = JOINS[name]
    given = some_rows(7, 600)
    steps, latest = list[Any](), 0
    for row in given:
        latest = max(latest, row[2])
        steps += [Record(row, row[2]), Watermark(latest - 20)]
    env = fn.Environment(parallelism=2, state_backend=state_backend)
    rows = env.from_script(steps).to_rows(COLUMNS)
    left, right = rows.filter(fn.col("side") == 0), rows.filter(fn.col("side") == 1).rename({"key": "of"})
    pairs = join(left.key_by("key"), right.key_by("of"))
    late = [pairs.side_output(LEFT), pairs.side_output(RIGHT)]
    assert [side.schema for side in late] == [left.schema, right.schema]
    assert pairs.columns == ["side", "key", "ms", "value", "side_right", "ms_right", "value_right"]
    found, late_rows = pairs.collect(), [side.collect() for side in late]
    result = env.execute(workers=workers)
    assert sum(task.late_records for task in result.tasks) == 0
    late_lefts, late_rights = (shown(rows) for rows in late_rows)
    given_rows = {row[3]: dict(zip(COLUMNS, row, strict=True)) for row in given}
    for left_row in late_lefts:
        assert left_row == given_rows[left_row["value"]]
    for right_row in late_rights:
        key = right_row.pop("of")
        assert {**right_row, "key": key} == given_rows[right_row["value"]]
    are_late = {row["value"] for row in (*late_lefts, *late_rights)}
    assert 0 < len(are_late) == len(late_lefts) + len(late_rights) < len(given)
    expected = list[tuple[int, int | None]]()
    for key in "abc":
        of_key = [row for row in given_rows.values() if row["key"] == key and row["value"] not in are_late]
        expected += meet(*([row for row in of_key if row["side"] == side] for side in (0, 1)))
    assert sorted((row["value"], row["value_right"] or 0) for row in shown(found)) == sorted(
        (left, right or 0) for left, right in expected
    )


def test_late_rows_go_on_with_their_times_and_both_may_have_one_tag() -> None:
    env = fn.Environment()
    steps = [Record(("a", 9_000), 9_000), Watermark(9_500), Record(("a", 5), 5), Record(("a", 700), 700)]
    rows = env.from_script(steps).to_rows({"key": "utf8", "ms": "int64"}).key_by("key")
    pairs = rows.join(rows, fn.Tumbling("1s"), side_output_left_late_data=LEFT, side_output_right_late_data=LEFT)
    late = pairs.side_output(LEFT)
    times = late.to_objects().process(TimeOf()).collect()
    found = pairs.collect()
    env.execute()
    assert len(found) == 1
    # Each of the two channels passes its own watermark, so the one that is read last has both.
    assert {(5, 5), (700, 700)} == set(times)


class TimeOf(fn.ProcessFunction[Any, Any]):
    def process(self, record: Any, ctx: Any) -> Any:
        yield record["ms"], ctx.timestamp


def test_only_who_asks_has_one() -> None:
    env = fn.Environment()
    rows = env.from_script([Record(("a", 1), 1)]).to_rows({"key": "utf8", "ms": "int64"}).key_by("key")
    pairs = rows.interval_join(rows, "0s", "1s", side_output_right_late_data=RIGHT)
    assert pairs.side_output(RIGHT).schema == {"key": "utf8", "ms": "int64"}
    with pytest.raises(PlanError, match=r"side_output\('left'\): operator 'interval_join' has no such side output"):
        pairs.side_output(LEFT)


def test_what_cannot_be_is_refused_where_it_is_written() -> None:
    env = fn.Environment()
    rows = env.from_script([Record(("a", 1), 1)]).to_rows({"key": "utf8", "ms": "int64"})
    keyed, text = rows.key_by("key"), cast(Any, "late")
    other = rows.rename({"ms": "at"}).key_by("key")
    for made, said in [
        (
            lambda: keyed.interval_join(keyed, "0s", "1s", side_output_left_late_data=text),
            r"interval_join\(side_output_left_late_data=\): must be a flownet.OutputTag, not str 'late'",
        ),
        (lambda: keyed.join(keyed, side_output_right_late_data=LEFT), "without a window no row is late"),
        (
            lambda: keyed.as_of_join(
                other, side_output_left_late_data=LEFT, side_output_right_late_data=fn.OutputTag("left")
            ),
            "have other columns, and one side output for both, 'left': give each a tag of its own",
        ),
    ]:
        with pytest.raises(PlanError, match=said):
            made()  # type: ignore[no-untyped-call]
