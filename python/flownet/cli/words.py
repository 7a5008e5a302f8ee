"""Prepares the words of a command line for argparse."""

from __future__ import annotations

import itertools


def with_places_apart(words: list[str]) -> list[str]:
    """Keep ``--ui`` and ``--otel`` from taking ``MODULE:ENV`` for an address: that ends in a port, or has a scheme."""
    apart = list(words)
    for at, (word, following) in enumerate(itertools.pairwise(words)):
        if (word == "--ui" and not following.rpartition(":")[2].isdecimal()) or (
            word == "--otel" and "://" not in following
        ):
            apart[at] = f"{word}="
    return apart
