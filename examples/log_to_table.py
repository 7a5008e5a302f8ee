"""Lines of access logs to a table in Parquet files: a row for each request, each once whatever fails on the way.

python examples/log_to_table.py logs/ table/

Lines become columns by regular expressions, in Rust; those that are no request are left out. Run it again after it was
killed, and it goes on where it was. Needs pyarrow.
"""

import sys

import flownet as fn

# 1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET /a?x=1 HTTP/1.1" 200 512
REQUEST = r'^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) ([^ "?]+)[^"]*" (\d{3}) (\d+|-)'
NAMES = ["host", "at", "method", "path", "status", "bytes"]


def describe(logs, table):
    """Describe the dataflow from the files of a folder to those of another one."""
    env = fn.Environment(parallelism=2, name="log to table")
    env.enable_checkpointing("1s", storage=f"{table}.checkpoints")
    lines = env.read_text(logs, errors="replace").map(lambda line: (line,)).to_rows({"line": "utf8"})
    parts = {name: fn.col("line").str.extract(REQUEST, group) for group, name in enumerate(NAMES, 1)}
    requests = lines.select(**parts).filter(fn.col("host").is_not_null())
    # What is written as - has no size.
    sizes = fn.when(fn.col("bytes") != "-").then(fn.col("bytes").cast("int64")).otherwise(None)
    requests.with_columns(fn.col("status").cast("int16"), bytes=sizes).write_parquet(table)
    return env


if __name__ == "__main__":
    describe(sys.argv[1], sys.argv[2]).execute()
