"""Ticks to prices by second: the mean price of each symbol, weighted by size, from Parquet files.

python examples/vwap.py ticks/

The files have the columns ``symbol``, ``price``, ``size`` and ``time``, a timestamp. No Python object is made of a
tick. Needs pyarrow.
"""

import sys

import flownet as fn

env = fn.Environment(parallelism=2)
(
    env.read_parquet(
        sys.argv[1] if len(sys.argv) > 1 else "ticks",
        columns=["symbol", "price", "size", "time"],
        filter=fn.col("size") > 0,
        event_time="time",
    )
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
    env.execute()
