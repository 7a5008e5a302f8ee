from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run

PAIRS = [("a", 3), ("b", 5), ("a", 1), ("a", 2)]


def keyed(env: fn.Environment) -> fn.KeyedStream[str, tuple[str, int]]:
    return env.from_collection(PAIRS).key_by(lambda pair: pair[0])


def of_key(key: str, results: list[tuple[str, Any]]) -> list[Any]:
    return [value for name, value in results if name == key]


def test_count_emits_the_count_so_far(env: fn.Environment, run: Run) -> None:
    counts = run(keyed(env).count())
    assert (of_key("a", counts), of_key("b", counts)) == ([1, 2, 3], [1])


def test_sum_emits_the_sum_so_far_of_a_field(env: fn.Environment, run: Run) -> None:
    sums = run(keyed(env).sum(1))
    assert (of_key("a", sums), of_key("b", sums)) == ([3, 4, 6], [5])


def test_min_emits_the_least_value_so_far(env: fn.Environment, run: Run) -> None:
    assert of_key("a", run(keyed(env).min(1))) == [3, 1, 1]


def test_max_emits_the_greatest_value_so_far(env: fn.Environment, run: Run) -> None:
    assert of_key("a", run(keyed(env).max(1))) == [3, 3, 3]


def test_a_field_may_be_a_key_of_dicts(env: fn.Environment, run: Run) -> None:
    rows = env.from_collection([{"0": 1, "n": 2.5}, {"0": 10, "n": 0.5}]).key_by(lambda _: "all")
    assert run(rows.sum("n")) == [("all", 2.5), ("all", 3.0)]


def test_a_field_that_looks_like_an_index_stays_a_text(env: fn.Environment, run: Run) -> None:
    rows = env.from_collection([{"0": 1}, {"0": 10}]).key_by(lambda _: "all")
    assert run(rows.sum("0")) == [("all", 1), ("all", 11)]


def test_without_a_field_the_record_itself_is_added(env: fn.Environment, run: Run) -> None:
    assert run(env.from_collection([1, 2.5, 10**30]).key_by(lambda _: 0).sum()) == [(0, 1), (0, 3.5), (0, 3.5 + 10**30)]


def test_sums_of_texts_are_pythons_own(env: fn.Environment, run: Run) -> None:
    assert run(env.from_collection(["a", "b"]).key_by(lambda _: 0).sum()) == [(0, "a"), (0, "ab")]


def test_a_missing_field_names_the_operator_and_the_record(env: fn.Environment, run: Run) -> None:
    with pytest.raises(fn.errors.OperatorError, match="operator 'sum'.*on record"):
        run(env.from_collection([("a",)]).key_by(lambda row: row[0]).sum(1))


@pytest.mark.parametrize("field", [1.5, True, ("a",)])
def test_a_field_of_another_type_is_refused_at_once(env: fn.Environment, field: Any) -> None:
    with pytest.raises(fn.errors.ConfigError, match="must be an index, a key or None"):
        keyed(env).sum(field)
