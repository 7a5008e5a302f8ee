"""Files that pyarrow, polars and DuckDB write are read as the rows that they were written of."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn

SCHEMA = pa.schema(
    [("n", pa.int64()), ("x", pa.float64()), ("t", pa.string()), ("b", pa.bool_()), ("at", pa.timestamp("us"))]
)

Writer = Callable[[pa.Table, Path], object]


def by_duckdb(options: str) -> Writer:
    def write(table: pa.Table, path: Path) -> None:
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY given TO '{path}' ({options})")

    return write


WRITERS: dict[str, tuple[str, Writer]] = {
    "csv of pyarrow": ("csv", lambda table, path: pyarrow.csv.write_csv(table, path)),
    "csv of polars": ("csv", lambda table, path: polars.DataFrame(table).write_csv(path)),
    "csv of duckdb": ("csv", by_duckdb("FORMAT csv, HEADER")),
    "json of polars": ("json", lambda table, path: polars.DataFrame(table).write_ndjson(path)),
    "json of duckdb": ("json", by_duckdb("FORMAT json")),
    "parquet of pyarrow": ("parquet", lambda table, path: pq.write_table(table, path, data_page_version="2.0")),
    "parquet of polars": (
        "parquet",
        lambda table, path: polars.DataFrame(table).write_parquet(path, compression="gzip"),
    ),
    "parquet of duckdb": ("parquet", by_duckdb("FORMAT parquet")),
}

INSTANTS = st.integers(-(10**15), 10**15).map(lambda us: datetime(2000, 1, 1) + timedelta(microseconds=us))
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.text(st.sampled_from("ab,;\"'\n\r\t é🙂\\"), max_size=6),
        st.none() | st.booleans(),
        st.none() | INSTANTS,
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=15, deadline=None)
@given(files=st.lists(ROWS, min_size=1, max_size=3))
def test_rows_of_files_of_others_are_those_that_were_written(
    writer: str, files: list[list[tuple[object, ...]]]
) -> None:
    format, write = WRITERS[writer]
    tables = [pa.table([[row[place] for row in rows] for place in range(len(SCHEMA))], schema=SCHEMA) for rows in files]
    with tempfile.TemporaryDirectory() as folder:
        for number, table in enumerate(tables):
            write(table, Path(folder, f"{number}.{format}"))
        env = fn.Environment(parallelism=1)
        if format == "parquet":
            found = env.read_parquet(folder).to_arrow()
        elif format == "csv":
            found = env.read_csv(folder, schema=SCHEMA).to_arrow()
        else:
            found = env.read_json(folder, schema=SCHEMA).to_arrow()
    assert found.to_pylist() == pa.concat_tables(tables).to_pylist()
