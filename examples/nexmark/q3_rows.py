"""Nexmark q3 on rows, local item suggestion: who sells in OR, ID or CA in category 10, and in which auctions.

python q3_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows

import flownet as fn


def query(streams):
    """Join persons of three states with their auctions of one category."""
    local = streams.persons.filter(fn.col("state").is_in(["OR", "ID", "CA"])).select("id", "name", "city", "state")
    items = streams.auctions.filter(fn.col("category") == 10).select("seller", auction=fn.col("id"))
    both = local.key_by("id").join(items.key_by("seller"))
    return both.select("name", "city", "state", "auction")


if __name__ == "__main__":
    nexmark_rows.main(query)
