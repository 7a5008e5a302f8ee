"""What tests of aggregates share: sums as a user would make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

import flownet as fn


class Sums(fn.BatchAggregate):
    """Sums of integers."""

    state = {"sum": "int64"}
    returns = "int64"

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        """Sum values by group."""
        return self.merge({"sum": rows["n"]}, groups, count)

    def merge(self, states: Any, groups: Any, count: int) -> Any:
        """Sum sums by group."""
        sums = np.zeros(count, np.int64)
        np.add.at(sums, groups, states["sum"])
        return {"sum": sums}

    def result(self, states: Any) -> Any:
        """Give the sums."""
        return states["sum"]


def collected(rows: fn.rows.CollectedRows) -> list[dict[str, Any]]:
    """Give all rows in an order of their own."""
    return rows.to_polars().sort(pl.all()).to_dicts()
