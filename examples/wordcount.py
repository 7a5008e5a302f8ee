"""Counts the words of text files by windows of five seconds, in two worker processes.

python examples/wordcount.py [FILE OR FOLDER ...]
flownet run examples/wordcount.py:env --workers 2
"""

import sys
from pathlib import Path

import flownet as fn

env = fn.Environment(parallelism=2, buffer_timeout="10ms")

counts = (
    env.read_text(sys.argv[1:] or sorted(Path(__file__).parent.glob("*.py")))
    .flat_map(str.split)
    .key_by(lambda word: word)
    .window(fn.Tumbling("5s"))
    .count()
)
counts.print()

if __name__ == "__main__":
    env.execute(workers=2)
