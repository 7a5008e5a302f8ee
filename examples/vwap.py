"""Ticks to prices by second: the mean price of each symbol, weighted by size, from Parquet files.

python examples/vwap.py ticks/

The files have the columns ``symbol``, ``price``, ``size`` and ``time``, a timestamp. Each subtask reads files of its
own; no Python object is made of a tick. Needs pyarrow.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

import flownet as fn

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "ticks")
files = [str(path) for path in sorted(folder.rglob("*.parquet"))]
columns = ["symbol", "price", "size", "time"]


def ticks(subtask, subtasks):
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([pyarrow.parquet.read_schema(files[0]).field(name) for name in columns])
    mine = (pyarrow.parquet.ParquetFile(path) for path in files[subtask::subtasks])
    batches = (batch for file in mine for batch in file.iter_batches(columns=columns))
    return pyarrow.RecordBatchReader.from_batches(schema, batches)


if not files:
    sys.exit(f"there are no Parquet files in {folder}")
schema = {field.name: field.type for field in pq.read_schema(files[0]) if field.name in columns}
env = fn.Environment(parallelism=2)
(
    env.from_arrow(ticks, schema=schema, event_time="time", delay="1s")
    .filter(fn.col("size") > 0)
    .with_columns(worth=fn.col("price") * fn.col("size"))
    .key_by("symbol")
    .window(fn.Tumbling("1s"))
    .agg(worth=fn.sum("worth"), size=fn.sum("size"), ticks=fn.count())
    .select("symbol", "window_start", "ticks", "size", vwap=fn.col("worth") / fn.col("size"))
    .to_objects()
    .map(lambda row: f"{row['window_start']:%H:%M:%S} {row['symbol']} {row['vwap']:.4f} {row['size']} {row['ticks']}")
    .print()
)

if __name__ == "__main__":
    started = datetime.now(UTC)
    env.execute()
    print(f"{len(files)} files in {(datetime.now(UTC) - started).total_seconds():.2f} s", file=sys.stderr)
