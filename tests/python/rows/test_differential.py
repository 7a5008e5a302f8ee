"""Rows beside polars and DuckDB, on random tables that are full of edge values.

A failure names its seed: `check(seed)` repeats it.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import flownet as fn

Values = Callable[[random.Random], Any]
EPOCH = datetime(1970, 1, 1)


def one_of(edges: list[Any], other: Values) -> Values:
    """Draw an edge as often as any other value, and sometimes none."""

    def draw(chance: random.Random) -> Any:
        kind = chance.random()
        return None if kind < 0.12 else chance.choice(edges) if kind < 0.6 else other(chance)

    return draw


def integers(least: int, most: int) -> Values:
    edges = [least, most, least + 1, most - 1, 1, *([0, -1] if least < 0 else [0])]
    return one_of(edges, lambda chance: chance.randint(least, most))


def decimals(digits: int, scale: int) -> Values:
    most = 10**digits - 1
    edges = [Decimal(value).scaleb(-scale) for value in (most, -most, 0, 1, -1, 10**scale, 15)]
    return one_of(edges, lambda chance: Decimal(chance.randint(-(10**6), 10**6)).scaleb(-scale))


FLOATS = [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.0, -1.5, 5e-324, 2.0**53]
TEXTS = ["", "a", "A", "ä", "a\u0308", "z", "zz", "Z\u00fcrich", "日本", "\U0001f600", " ", "0", "%_", 'q"', "'"]
DATES = [date(1, 1, 1), date(1582, 10, 15), date(1969, 12, 31), date(1970, 1, 1), date(2000, 2, 29), date(9999, 12, 31)]
TIMES = [
    *(datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), EPOCH, datetime(1970, 1, 1, 0, 0, 0, 1)),
    *(datetime(2024, 3, 31, 2, 30), datetime(9999, 12, 31, 23, 59, 59, 999_999)),
]
MILLIS = [at.replace(microsecond=at.microsecond // 1000 * 1000) for at in TIMES]
NEAR = [datetime(1677, 9, 22), datetime(1969, 12, 31, 23, 59, 59, 999_999), EPOCH, datetime(2262, 4, 11)]


def day(chance: random.Random) -> date:
    return date(1970, 1, 1) + timedelta(days=chance.randint(-40_000, 40_000))


def moment(chance: random.Random) -> datetime:
    return EPOCH + timedelta(milliseconds=chance.randint(-(10**12), 10**12))


COLUMNS: dict[str, tuple[pa.DataType, Values]] = {
    "tiny": (pa.int8(), integers(-128, 127)),
    "i": (pa.int64(), integers(-(2**63), 2**63 - 1)),
    "j": (pa.int64(), integers(-3, 3)),
    "m": (pa.int64(), integers(-(10**6), 10**6)),
    "u": (pa.uint64(), integers(0, 2**64 - 1)),
    "v": (pa.uint64(), integers(0, 5)),
    "x": (pa.float64(), one_of(FLOATS, lambda chance: chance.uniform(-1e6, 1e6))),
    "y": (pa.float64(), one_of(FLOATS, lambda chance: float(chance.randint(-3, 3)))),
    "f": (pa.float32(), one_of(FLOATS, lambda chance: chance.randint(-8, 8) / 4)),
    "s": (pa.string(), one_of(TEXTS, lambda chance: "".join(chance.choices("abÄ", k=chance.randint(0, 3))))),
    "r": (pa.string(), one_of(TEXTS, lambda chance: chance.choice("abc"))),
    "b": (pa.bool_(), one_of([True, False], lambda chance: chance.random() < 0.5)),
    "c": (pa.bool_(), one_of([True], lambda chance: chance.random() < 0.5)),
    "d": (pa.date32(), one_of(DATES, day)),
    "e": (pa.date32(), one_of(DATES, day)),
    "us": (pa.timestamp("us"), one_of(TIMES, moment)),
    "us2": (pa.timestamp("us"), one_of(TIMES, moment)),
    "ms": (pa.timestamp("ms"), one_of(MILLIS, moment)),
    "ns": (pa.timestamp("ns"), one_of(NEAR, moment)),
    "n": (pa.decimal128(12, 2), decimals(12, 2)),
    "o": (pa.decimal128(18, 4), decimals(14, 4)),
}


def random_table(chance: random.Random) -> pa.Table:
    rows = chance.choice([0, 1, 2, 65, 150])
    columns = {name: pa.array([draw(chance) for _ in range(rows)], kind) for name, (kind, draw) in COLUMNS.items()}
    return pa.table({"id": pa.array(range(rows), pa.int64()), **columns})


@dataclass(frozen=True)
class Case:
    """An expression three times; None for an engine that means something else by it."""

    ours: fn.Expr
    polars: pl.Expr | None
    sql: str | None
    values: tuple[Any, ...] = ()


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PAIRS = [
    *(("tiny", "i"), ("i", "j"), ("u", "v"), ("x", "y"), ("f", "x"), ("f", "f"), ("m", "y"), ("s", "r"), ("b", "c")),
    *(("d", "e"), ("us", "us2"), ("ms", "us"), ("us", "ms"), ("ns", "us"), ("ms", "ns"), ("n", "o"), ("o", "n")),
    *(("n", "m"), ("x", "x")),
]
TWO_UNITS = {"ms", "ns"}
"""polars compares times of two units in the coarser one."""


def comparisons() -> Iterator[tuple[str, Case]]:
    for left, right in PAIRS:
        for sign, of in COMPARISONS.items():
            theirs = None if {left, right} & TWO_UNITS or "n" in (left, right) else of(pl.col(left), pl.col(right))
            # DuckDB fails for times that nanoseconds do not reach; those of "ns" are whole microseconds.
            sql = " ".join("ns::timestamp" if name == "ns" else name for name in (left, sign, right))
            yield f"{left} {sign} {right}", Case(of(fn.col(left), fn.col(right)), theirs, sql)


def written(chance: random.Random) -> Iterator[tuple[str, Case]]:
    """Compare columns with values that are drawn like theirs, one and several."""
    for name in ("tiny", "i", "u", "x", "f", "s", "b", "d", "us", "n"):
        kind, draw = COLUMNS[name]
        some = [value for value in (draw(chance) for _ in range(8)) if is_literal(name, value)]
        if not some:
            continue
        one = some[0]
        for sign, of in COMPARISONS.items():
            theirs = None if name == "n" else of(pl.col(name), pl.lit(one))
            yield f"{name} {sign} {one!r}", Case(of(fn.col(name), one), theirs, f"{name} {sign} ?", (one,))
        marks = ", ".join("?" for _ in some)
        dtype = pl.Series(pa.array([], kind)).dtype
        among = None if name == "n" else pl.col(name).is_in(pl.Series(some, dtype=dtype).implode())
        yield f"{name} in {some!r}", Case(fn.col(name).is_in(some), among, f"{name} in ({marks})", tuple(some))


def is_literal(name: str, value: Any) -> bool:
    """Say whether an expression holds a value: an integer of 64 bits, or a float of the column's precision."""
    if value is None or (name == "f" and value == 5e-324):
        return False
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def calculations() -> Iterator[tuple[str, Case]]:
    for sign, of in {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}.items():
        yield f"x {sign} y", Case(of(fn.col("x"), fn.col("y")), of(pl.col("x"), pl.col("y")), f"x {sign} y")
    for sign, of in {"+": operator.add, "-": operator.sub, "*": operator.mul}.items():
        yield f"m {sign} j", Case(of(fn.col("m"), fn.col("j")), of(pl.col("m"), pl.col("j")), f"m {sign} j")
        yield f"n {sign} o", Case(of(fn.col("n"), fn.col("o")), None, f"n {sign} o::decimal(20, 4)")
    divisor, theirs = fn.when(fn.col("j") != 0).then(fn.col("j")), pl.when(pl.col("j") != 0).then(pl.col("j"))
    yield "m // j", Case(fn.col("m") // divisor, pl.col("m") // theirs, None)
    yield "m % j", Case(fn.col("m") % divisor, pl.col("m") % theirs, None)
    yield "-x", Case(-fn.col("x"), -pl.col("x"), "-x")
    yield "abs", Case(fn.col("x").abs(), pl.col("x").abs(), "abs(x)")
    yield "us - us2", Case(fn.col("us") - fn.col("us2"), pl.col("us") - pl.col("us2"), None)
    yield (
        "when",
        Case(
            fn.when(fn.col("x") > fn.col("y")).then(fn.col("m")).when(fn.col("b")).then(fn.col("j")).otherwise(0),
            pl.when(pl.col("x") > pl.col("y")).then(pl.col("m")).when(pl.col("b")).then(pl.col("j")).otherwise(0),
            "case when x > y then m when b then j else 0 end",
        ),
    )
    yield "between", Case(fn.col("x").is_between(fn.col("y"), 1.0), pl.col("x").is_between(pl.col("y"), 1.0), None)
    yield (
        "coalesce",
        Case(fn.coalesce(fn.col("s"), fn.col("r"), ""), pl.coalesce("s", "r", pl.lit("")), "coalesce(s, r, '')"),
    )
    yield "logic", Case(fn.col("b") & ~fn.col("c"), pl.col("b") & ~pl.col("c"), "b and not c")


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other) or (one == other and isinstance(one, Decimal | int | float))


def are_same(ours: Iterable[Any], theirs: Iterable[Any]) -> bool:
    ours, theirs = list(ours), list(theirs)
    return len(ours) == len(theirs) and all(map(is_same, ours, theirs))


@contextmanager
def database(table: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set threads = 1")
        connection.register("given", table)
        connection.execute("create table rows as select * from given")
        yield connection


def check_expressions(seed: int) -> None:
    chance = random.Random(seed)
    table = random_table(chance)
    cases = dict(comparisons()) | dict(written(chance)) | dict(calculations())
    env = fn.Environment(parallelism=1)
    made = env.from_arrow(table).select("id", **{f"c{at}": case.ours for at, case in enumerate(cases.values())})
    collected = made.collect()
    kept = {name: env.from_arrow(table).filter(cases[name].ours).select("id").collect() for name in ("x < y", "f >= x")}
    env.execute(workers=0)
    found = collected.to_arrow()
    assert found["id"].to_pylist() == table["id"].to_pylist()
    frame = pl.DataFrame(table)
    with database(table) as connection:
        for at, (name, case) in enumerate(cases.items()):
            ours = found[f"c{at}"].to_pylist()
            if case.polars is not None:
                theirs = frame.select(made=case.polars)["made"].to_list() if len(frame) else []
                assert are_same(ours, theirs), (seed, name, "polars", ours, theirs)
            if case.sql is not None:
                answer = connection.execute(f"select {case.sql} from rows order by id", case.values).fetchall()
                assert are_same(ours, (row[0] for row in answer)), (seed, name, "DuckDB", ours, answer)
        for name, rows in kept.items():
            answer = connection.execute(f"select id from rows where {name} order by id").fetchall()
            assert rows.to_arrow()["id"].to_pylist() == [row[0] for row in answer], (seed, name)


KEYS = ["tiny", "i", "j", "u", "x", "y", "f", "s", "b", "d", "us", "ms", "ns", "n"]
ORDERED = ["tiny", "i", "u", "y", "f", "s", "b", "d", "us", "ms", "n", "o"]
COUNTED = ["i", "u", "x", "y", "f", "s", "b", "d", "us", "n"]
SUMMED = ["m", "y", "n"]


def sql_extreme(function: str, name: str) -> str:
    """NaN counts only alone, where DuckDB has it above all numbers."""
    if name not in ("x", "y", "f"):
        return f"{function}({name})"
    return f"coalesce({function}({name}) filter (where not isnan({name})), {function}({name}))"


def aggregates() -> tuple[dict[str, Any], dict[str, pl.Expr], list[str]]:
    ours: dict[str, Any] = {"n_rows": fn.count(), "first_id": fn.min("id")}
    theirs: dict[str, pl.Expr] = {"n_rows": pl.len(), "first_id": pl.col("id").min()}
    sql = ["count(*)", "min(id)"]
    for name in ORDERED:
        ours |= {f"min_{name}": fn.min(name), f"max_{name}": fn.max(name)}
        theirs |= {f"min_{name}": pl.col(name).min(), f"max_{name}": pl.col(name).max()}
        sql += [sql_extreme("min", name), sql_extreme("max", name)]
    for name in COUNTED:
        ours[f"n_{name}"] = fn.approx_count_distinct(name)
        theirs[f"n_{name}"] = pl.col(name).drop_nulls().n_unique()
        sql.append(f"count(distinct {name})")
    for name in SUMMED:
        ours[f"sum_{name}"] = fn.sum(name)
        theirs[f"sum_{name}"] = pl.col(name).sum()
        sql.append(f"coalesce(sum({name}), 0)")
    return ours, theirs, sql


def check_groups(seed: int) -> None:
    chance = random.Random(seed)
    table = random_table(chance)
    ours, theirs, sql = aggregates()
    env = fn.Environment(parallelism=chance.randint(1, 3))
    rows = env.from_arrow(table)
    asked = [(name,) for name in KEYS] + [tuple(chance.sample(KEYS, 2)) for _ in range(3)]
    groups = {names: rows.rebalance().key_by(*names).window(fn.EndOfInput()).agg(**ours).collect() for names in asked}
    env.execute(workers=0)
    frame = pl.DataFrame(table)
    with database(table) as connection:
        for names, collected in groups.items():
            found = collected.to_arrow().select(list(ours)).sort_by("first_id").to_pylist()
            if len(frame):
                grouped = frame.group_by(*names).agg(**theirs).sort("first_id").select(list(ours)).to_dicts()
                compare_groups((seed, names, "polars"), found, grouped)
            answer = connection.execute(
                f"select {', '.join(sql)} from rows group by {', '.join(names)} order by 2"
            ).fetchall()
            compare_groups((seed, names, "DuckDB"), found, [dict(zip(ours, row, strict=True)) for row in answer])


def compare_groups(where: Any, found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [row["first_id"] for row in found] == [row["first_id"] for row in expected], where
    for ours, theirs in zip(found, expected, strict=True):
        for name in ours:
            assert is_same(ours[name], theirs[name]), (where, name, ours["first_id"], ours[name], theirs[name])


def check_joins(seed: int) -> None:
    chance = random.Random(seed)
    left, right = random_table(chance), random_table(chance)
    env = fn.Environment(parallelism=chance.randint(1, 3))
    joined = {}
    for name in KEYS:
        sides = [env.from_arrow(side.select(["id", name])).rebalance() for side in (left, right)]
        first, second = sides[0].key_by(name), sides[1].rename({"id": "other"}).key_by(name)
        joined[name] = first.join(second, fn.EndOfInput()).select("id", "other").collect()
    env.execute(workers=0)
    for name, collected in joined.items():
        found = sorted((row["id"], row["other"]) for row in collected.to_arrow().to_pylist())
        one, other = (pl.DataFrame(side.select(["id", name])) for side in (left, right))
        pairs = one.join(other.rename({"id": "other"}), on=name).select("id", "other").rows()
        assert found == sorted(pairs), (seed, name, "polars")
        with duckdb.connect() as connection:
            connection.register("one", left)
            connection.register("other", right)
            query = f"select one.id, other.id from one join other on one.{name} = other.{name} order by 1, 2"
            assert found == connection.execute(query).fetchall(), (seed, name, "DuckDB")


CHECKS = {"expressions": check_expressions, "groups": check_groups, "joins": check_joins}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", CHECKS)
def test_rows_are_those_of_polars_and_duckdb(kind: str, seed: int) -> None:
    CHECKS[kind](seed)


@pytest.mark.parametrize("kind", CHECKS)
def test_so_are_those_of_a_seed_that_nobody_chose(kind: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    CHECKS[kind](seed)
