"""Pathway: words of a text file, counted; under ``pathway spawn``.

Settings come from the environment:

    PEER_TEXT   the file
    PEER_OUT    where each process appends its figures as lines of JSON

The clock runs over ``pw.run()``, which reads the file, to its end; importing the library is not in it.
"""

import json
import os
import time

import pathway as pw

lines = pw.io.plaintext.read(os.environ["PEER_TEXT"], mode="static")
words = lines.select(word=pw.apply(str.split, pw.this.data)).flatten(pw.this.word)
counts = words.groupby(pw.this.word).reduce(pw.this.word, count=pw.reducers.count())
pw.io.null.write(counts)
start, cpu = time.monotonic(), time.process_time()
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
with open(os.environ["PEER_OUT"], "a") as file:
    figures = {"start": start, "end": time.monotonic(), "cpu_seconds": time.process_time() - cpu}
    file.write(json.dumps(figures) + "\n")
