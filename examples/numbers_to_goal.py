"""Sends numbers round until they have come to 1, by halving or by three times and one, and tells in how many steps.

python examples/numbers_to_goal.py
"""

import flownet as fn


def collatz(record):
    """Take the next step of a number."""
    start, number, steps = record
    return start, number // 2 if number % 2 == 0 else 3 * number + 1, steps + 1


def has_come_to_one(record):
    """Say whether a number is at its goal."""
    return record[1] == 1


env = fn.Environment(parallelism=2, buffer_timeout="5ms")
numbers = env.from_collection([(number, number, 0) for number in range(1, 28)])
goals = numbers.iterate(lambda each: each.map(collatz), until=has_come_to_one)
goals.map(lambda record: f"{record[0]}: {record[2]} steps").print()

if __name__ == "__main__":
    env.execute(workers=2)
