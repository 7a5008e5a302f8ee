"""Nexmark q0, pass through: all bids as they are.

python q0.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark


def query(events):
    """Let every bid through."""
    return nexmark.bids(events)


if __name__ == "__main__":
    nexmark.main(query)
