"""A job with more state than memory, for tests that run it in a process of its own.

``python larger_than_memory.py FOLDER KEYS`` takes in a text for each key and stops with a checkpoint; or goes on from
the checkpoint in the folder, asks for some of the texts, and stops with another. It says in JSON what it was told, and
how much memory it had at most beyond what it had before the job.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import flownet as fn

TEXT_BYTES = 8_000
ASKED = 50


def text(key: int) -> str:
    """Return what is kept for a key."""
    return f"{key:08}" * (TEXT_BYTES // 8)


def records(keys: int) -> Callable[[int | None], Iterator[tuple[int, tuple[int, str, int]] | None]]:
    """Yield the texts of all keys and then nothing more; to who goes on, questions for some of them first."""

    def read(position: int | None) -> Iterator[tuple[int, tuple[int, str, int]] | None]:
        if position is None:
            for key in range(keys):
                yield key + 1, (key, text(key), 0)
        else:
            for key in range(0, keys, keys // ASKED):
                yield position, (key, "", 1)
        while True:
            yield None

    return read


def answered(kept: tuple[int, str, int], asked: tuple[int, str, int]) -> tuple[int, str, int]:
    """Keep the text, and count the questions."""
    return kept[0], kept[1], kept[2] + asked[2]


def most_memory() -> int:
    """Return the most bytes that this process had in RAM so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(folder: Path, keys: int) -> None:
    """Run it once."""
    goes_on = (folder / "checkpoints").exists()
    env = fn.Environment(state_backend="disk", state_memory="8MiB", state_dir=folder / "state", network_memory="4MiB")
    env.enable_checkpointing("1h", storage=folder / "checkpoints", timeout="1h")
    stream = env.from_generator(records(keys)).uid("texts").key_by(0).reduce(answered).uid("kept")
    found = stream.filter(lambda kept: kept[2] > 0).collect()
    expected = len(range(0, keys, keys // ASKED)) if goes_on else keys
    before = most_memory()
    with env.execute_async() as running:
        while max(task.records_in for task in running.status().tasks) < expected and running.status().state != "ended":
            time.sleep(0.01)
        running.stop(drain=False)
        result = running.wait()
    said = {
        "right": sum(kept == text(key) for key, kept, _ in found),
        "asked": expected if goes_on else 0,
        "times": sorted({times for *_, times in found}),
        "resumed": result.resumed_from is not None,
        "checkpoints": len(result.checkpoints),
        "bytes": result.checkpoints[-1].bytes,
        "memory": most_memory() - before,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
