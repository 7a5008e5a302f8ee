"""Nexmark q0 on rows, pass through: all bids as they are.

python q0_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows


def query(streams):
    """Let every bid through."""
    return streams.bids


if __name__ == "__main__":
    nexmark_rows.main(query)
