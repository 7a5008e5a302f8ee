"""Writes records into SQLite with a sink of one's own: one transaction a batch, one file a subtask.

python examples/custom_sink.py squares.db
"""

import sqlite3
import sys

import flownet as fn


class SQLite(fn.Sink):
    """Inserts pairs into the table ``squares`` of ``PATH-<subtask>``."""

    def __init__(self, path):
        self.path = path

    def open(self, ctx):
        """Connect where the subtask runs: a connection cannot be shipped."""
        self.database = sqlite3.connect(f"{self.path}-{ctx.subtask}")
        self.database.execute("CREATE TABLE IF NOT EXISTS squares (number INTEGER PRIMARY KEY, square INTEGER)")

    def write(self, records):
        """Insert what has arrived."""
        with self.database:
            self.database.executemany("INSERT OR REPLACE INTO squares VALUES (?, ?)", records)

    def close(self):
        """Let go of the file."""
        self.database.close()


def describe(path):
    """Describe the dataflow from numbers to their squares in ``path``."""
    env = fn.Environment(parallelism=2)
    numbers = env.from_iterable(range(10_000)).rebalance()
    numbers.map(lambda number: (number, number * number)).sink_to(SQLite(path))
    return env


if __name__ == "__main__":
    print(describe(sys.argv[1]).execute(workers=2))
