"""Nexmark q8 on rows, monitor new users: who registered and opened an auction in the same 10 seconds.

Emits person, name and the start of the 10 seconds.

python q8_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows

import flownet as fn

PERIOD = fn.Tumbling("10s")


def query(streams):
    """Join the persons and the sellers of each window."""
    sellers = streams.auctions.key_by("seller").window(PERIOD).agg(auctions=fn.count())
    new = streams.persons.key_by("id").join(sellers.key_by("seller"), PERIOD)
    return new.select("id", "name", start_ms=fn.col("window_start").dt.epoch())


if __name__ == "__main__":
    nexmark_rows.main(query)
