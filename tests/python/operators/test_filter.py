from __future__ import annotations

from typing import TYPE_CHECKING

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


def test_filter_keeps_records_for_which_the_predicate_is_true(env: fn.Environment, run: Run) -> None:
    numbers = env.from_collection(range(100)).rebalance()
    assert sorted(run(numbers.filter(lambda n: n % 3 == 0))) == list(range(0, 100, 3))


def test_filter_tests_results_as_if_does(env: fn.Environment, run: Run) -> None:
    assert sorted(run(env.from_collection(["to", "", "be"]).filter(len))) == ["be", "to"]
