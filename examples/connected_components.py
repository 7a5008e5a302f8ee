"""Finds which people know each other, over however many others: the connected components of a graph.

Each line of the file is two names. Of each component the least name stands for all.

python examples/connected_components.py friends.txt
"""

import argparse

import flownet as fn


def both_ways(line):
    """Make a line known to both of its names."""
    one, other = line.split()
    return [(one, other, None), (other, one, None)]


def update(known, record):
    """Take note of a neighbour, or of a name that is less than those heard of; tell the neighbours."""
    name, neighbour, heard = record
    least, neighbours = known or (name, set())
    if neighbour is not None:
        neighbours.add(neighbour)
        return (least, neighbours), [(neighbour, None, least)]
    if heard >= least:
        return None
    return (heard, neighbours), [(neighbour, None, heard) for neighbour in neighbours]


def components(lines):
    """Give (name, least name of its component) for each name in lines of two names."""
    by_name = lines.flat_map(both_ways).name("both ways").key_by(0)
    return by_name.iterate_delta(update).map(lambda known: (known[0], known[1][0]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    env = fn.Environment(parallelism=2, buffer_timeout="5ms")
    components(env.read_text(parser.parse_args().file)).print()
    env.execute(workers=2)
