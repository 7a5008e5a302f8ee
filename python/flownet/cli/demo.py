"""``flownet demo wordcount``: counts words by window, over real text, in several worker processes."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..api.environment import Environment
from ..api.window import Tumbling
from ..connectors.source_methods import files_of
from ..errors import ConfigError
from ..internal.units import format_value
from ..observation.progress import Progress
from ..observation.report import JobResult
from ..streams.stream import Stream
from .run import overrides, watch

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

Count = tuple[str, int]


def add_commands(commands: Commands) -> None:
    """Add ``demo`` to the command line."""
    demos = commands.add_parser("demo", help="run a job that comes with flownet").add_subparsers(
        metavar="DEMO", required=True
    )
    parser = demos.add_parser(
        "wordcount",
        help="count words",
        description="Count the words of text by window, in worker processes that exchange them over TCP. A word is "
        "what white space separates.",
    )
    parser.add_argument(
        "--input",
        metavar="PATH",
        nargs="+",
        help="files or folders; default: the source text of Python's standard library",
    )
    parser.add_argument("--socket", metavar="HOST:PORT", help="read lines from this server instead, until it hangs up")
    parser.add_argument("--workers", metavar="N", default="2", help="worker processes (default: 2; 0: all in this one)")
    parser.add_argument(
        "--throttle",
        metavar="RATE",
        type=float,
        help="slow the sink down to so many results a second, to see who waits",
    )
    parser.add_argument("--window", metavar="TIME", help="length of a window (default: 5s; 1s with --throttle)")
    parser.add_argument("--top", metavar="N", type=int, default=10, help="how many words to show (default: 10)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with collections.Counter over the same text; exit code 1 if unequal",
    )
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], dest="settings", help="as for run")
    parser.set_defaults(command=_wordcount, parallelism=None)


@dataclass(frozen=True, slots=True)
class Text:
    """The text to count."""

    title: str
    files: list[str]
    """Every file."""
    paths: list[str]
    """The files, or folders that hold nothing but them."""

    @classmethod
    def of_standard_library(cls) -> Text:
        """Take the source text of the Python that runs this, without what was installed into it."""
        root = os.path.dirname(os.__file__)
        installed = {"site-packages", "dist-packages"}
        files = [
            name
            for name in files_of(root)
            if name.endswith(".py") and installed.isdisjoint(os.path.relpath(name, root).split(os.sep))
        ]
        return cls("source text of Python's standard library", files, files)

    @classmethod
    def of_paths(cls, paths: list[str]) -> Text:
        """Take the text of files and of all files below folders."""
        return cls(" ".join(paths), [name for path in paths for name in files_of(os.path.abspath(path))], paths)

    def __str__(self) -> str:
        size = sum(os.path.getsize(name) for name in self.files)
        return f"{self.title}: {format_value(size, 'B')} in {len(self.files):,} files"

    def lines(self) -> Iterator[str]:
        """Lines as the job reads them."""
        for name in self.files:
            with open(name, encoding="utf-8", errors="replace") as file:
                yield from file


class Totals:
    """Sums the results of all windows; the job hands them over as they come.

    Parameters
    ----------
    max_words
        Forget the rarer half whenever more words than that are known, so that memory stays flat however long a job
        runs. A word that is frequent all the time is counted exactly. Default: None, forget nothing.
    """

    def __init__(self, max_words: int | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.words = 0
        self._max_words = max_words

    def extend(self, results: list[Count]) -> None:
        """Take the results of some words in some window."""
        for word, count in results:
            self.counts[word] += count
            self.words += count
        if self._max_words is not None and len(self.counts) > self._max_words:
            self.counts = Counter(dict(self.counts.most_common(self._max_words // 2)))


class LiveWindows(Totals):
    """Prints the top words of each window when its results have stopped coming."""

    def __init__(self, top: int) -> None:
        super().__init__(_REMEMBERED_WORDS)
        self._top = top
        self._pending: Counter[str] = Counter()
        self._grew = False

    def extend(self, results: list[Count]) -> None:
        """Take the results of some words in some window."""
        super().extend(results)
        for word, count in results:
            self._pending[word] += count
        self._grew = True

    def show_if_quiet(self, progress: Progress) -> None:
        """Print the window if nothing came since the last call."""
        grew, self._grew = self._grew, False
        if not grew:
            self.show(progress)

    def show(self, progress: Progress) -> None:
        """Print what came since the last window."""
        counts, self._pending = self._pending, Counter()
        if not counts:
            return
        progress.clear()
        words = "  ".join(f"{word} {count}" for word, count in counts.most_common(self._top))
        print(f"{counts.total():,} words: {words}", flush=True)


def count_words(lines: Stream[str], window: Tumbling) -> Stream[Count]:
    """Describe the dataflow from lines to ``(word, count)`` by window."""
    return lines.flat_map(str.split).key_by(_itself).window(window).count()


def _wordcount(options: argparse.Namespace) -> int:
    if options.throttle is not None and not options.throttle > 0:
        raise ConfigError(
            f"--throttle {options.throttle:g}: must be above 0", setting="throttle", value=options.throttle
        )
    if options.socket and (options.input or options.check):
        raise ConfigError("--socket cannot be combined with --input or --check", setting="socket", value=options.socket)
    settings = overrides(options)
    env = Environment(parallelism=max(1, int(settings["workers"])), name="wordcount")
    env._override(settings)
    window = Tumbling(options.window or ("1s" if options.throttle else "5s"))
    if options.socket:
        return _live(options, env, _socket(env, options.socket), window)
    text = Text.of_paths(options.input) if options.input else Text.of_standard_library()
    print(f"{text}; {_place(int(settings['workers']))}", flush=True)
    return _bounded(options, env, text, window)


def _socket(env: Environment, address: str) -> Stream[str]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--socket {address!r}: write HOST:PORT", setting="socket", value=address)
    return env.socket_text(host.strip("[]"), int(port), errors="replace")


def _bounded(options: argparse.Namespace, env: Environment, text: Text, window: Tumbling) -> int:
    is_exact = options.check or not options.throttle
    totals = Totals(None if is_exact else _REMEMBERED_WORDS)
    _sink(count_words(env.read_text(text.paths, errors="replace"), window), totals, options.throttle)
    with env.execute_async() as job:
        result, code = watch(job, Progress(sys.stderr))
    print(f"\ntop {options.top} of {'' if is_exact else 'more than '}{len(totals.counts):,} different words")
    for word, count in totals.counts.most_common(options.top):
        print(f"{count:12,}  {word}")
    _report(result, totals.words)
    return _check(text, totals.counts) if options.check and not code else code


def _live(options: argparse.Namespace, env: Environment, lines: Stream[str], window: Tumbling) -> int:
    windows = LiveWindows(options.top)
    _sink(count_words(lines, window), windows, options.throttle)
    progress = Progress(sys.stderr)
    print(f"words of {options.socket} by windows of {window}; Ctrl-C ends", flush=True)
    with env.execute_async() as job:
        result, code = watch(job, progress, lambda: windows.show_if_quiet(progress))
    windows.show(progress)
    _report(result, windows.words)
    return code


def _sink(counts: Stream[Count], into: Totals, rate: float | None) -> None:
    counts._collect(into, brake=rate or None)


def _report(result: JobResult, words: int) -> None:
    rate = format_value(words / result.seconds, "words/s")
    print(f"\n{words:,} words in {result.seconds:.2f} s: {rate}\n{result}")


def _check(text: Text, counts: Counter[str]) -> int:
    """Compare with a plain Counter; say how they differ."""
    expected = Counter(word for line in text.lines() for word in line.split())
    if counts == expected:
        print(f"check: equal to collections.Counter over the same text ({expected.total():,} words)")
        return 0
    wrong = [word for word in expected.keys() | counts.keys() if expected[word] != counts[word]]
    print(f"check: {len(wrong):,} words differ from collections.Counter over the same text", file=sys.stderr)
    for word in sorted(wrong, key=lambda word: -expected[word])[:_SHOWN_DIFFERENCES]:
        print(f"  {word!r}: counted {counts[word]:,}, expected {expected[word]:,}", file=sys.stderr)
    return 1


def _place(workers: int) -> str:
    if workers == 0:
        return "in this process"
    return f"{workers} worker process{'es' if workers > 1 else ''}"


def _itself(word: str) -> str:
    return word


_SHOWN_DIFFERENCES = 10
_REMEMBERED_WORDS = 40_000
