"""Run a bench and append its results to `benches/history.jsonl`, one line of JSON for each.

    python benches/history.py run BENCH COMMAND...     # run a bench; `make bench` does it for its benches
    python benches/history.py show [FILTER]            # print results whose bench or name contains FILTER

A result is a line of JSON that the command prints, or a new estimate of Criterion. Other lines are printed, and not
kept. Each result says commit, date and machine, so compare only results of one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HISTORY = ROOT / "benches" / "history.jsonl"
ESTIMATES = Path(os.environ.get("CRITERION_HOME", ROOT / "target" / "criterion"))

Result = dict[str, Any]


def result_of_row(row: dict[str, Any]) -> Result:
    """Split a row that a bench printed into the name of the result and its numbers."""
    numbers = {key: rounded(value) for key, value in row.items() if is_number(value)}
    return {"name": "/".join(str(value) for key, value in row.items() if key not in numbers), "numbers": numbers}


def is_number(value: Any) -> bool:
    """Return whether a value is a number, or a list of some, such as median, least and most."""
    if isinstance(value, list):
        return all(is_number(item) for item in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def estimates(folder: Path, since: float) -> Iterator[Result]:
    """Read the estimates that Criterion wrote since a time, in the order of their names."""
    for path in sorted(folder.glob("**/new/benchmark.json")):
        if path.stat().st_mtime < since:
            continue
        benchmark = json.loads(path.read_text())
        estimate = json.loads((path.parent / "estimates.json").read_text())
        # Criterion shows the slope if it has one: it is exact where samples differ in iterations.
        typical = estimate["slope"] or estimate["mean"]
        interval = typical["confidence_interval"]
        at, lower, upper = typical["point_estimate"], interval["lower_bound"], interval["upper_bound"]
        numbers: Result = {"ns": [at, lower, upper]}
        for unit, count in (benchmark["throughput"] or {}).items():
            numbers[f"{unit.lower()}_per_s"] = [count * 1e9 / nanoseconds for nanoseconds in (at, upper, lower)]
        yield {"name": benchmark["full_id"], "numbers": {key: rounded(value) for key, value in numbers.items()}}


def rounded(value: Any) -> Any:
    """Round to six digits: more are noise."""
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def origin() -> dict[str, Any]:
    """Describe the measurement: commit, date and machine."""
    status = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{HISTORY.relative_to(ROOT)}")
    return {
        "commit": git("rev-parse", "HEAD"),
        "modified": bool(status),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 2),
        },
    }


def git(*arguments: str) -> str:
    """Run git in the checkout and return its output, or nothing without git or checkout."""
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def processor() -> str:
    """Name the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def run(bench: str, command: list[str], history: Path) -> int:
    """Run a bench, print its results and append them; return its exit code."""
    measured, began = origin(), time.time()
    results: list[Result] = []
    environment = {**os.environ, "CRITERION_HOME": str(ESTIMATES)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                results.append(result_of_row(json.loads(line)))
                line = shown(results[-1]) + "\n"
            print(line, end="", flush=True)
    if process.returncode != 0:
        return process.returncode
    results += estimates(ESTIMATES, began)
    with history.open("a") as file:
        for result in results:
            file.write(json.dumps({**measured, "bench": bench, **result}) + "\n")
    return 0


def shown(result: Result) -> str:
    """Write a result for people."""
    return "  ".join([f"{result['name']:32}", *(f"{key} {figure(value)}" for key, value in result["numbers"].items())])


def figure(value: Any) -> str:
    """Write a number, or the first of some with the others in brackets."""
    if isinstance(value, list):
        first, *others = map(figure, value)
        return f"{first} [{'-'.join(others)}]" if others else first
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def show(words: str, history: Path) -> None:
    """Print the results of a bench or name, oldest first."""
    if not history.exists():
        sys.exit(f"{history}: no results yet; `make bench` adds some")
    for line in history.read_text().splitlines():
        result = json.loads(line)
        if words in result["bench"] or words in result["name"]:
            commit = result["commit"][:9] + ("+" if result["modified"] else "")
            print(f"{result['date'][:10]}  {commit:10}  {result['bench']}  {shown(result)}")


def main() -> int:
    """Parse the command line, then run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=Path, default=HISTORY, help="the file (default: benches/history.jsonl)")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run a bench and append its results")
    running.add_argument("bench", help="the name that its results get")
    running.add_argument("arguments", nargs=argparse.REMAINDER, metavar="COMMAND", help="the bench with its arguments")
    showing = commands.add_parser("show", help="print results")
    showing.add_argument("filter", nargs="?", default="", help="only results whose bench or name contains this")
    options = parser.parse_args()
    if options.command == "show":
        show(options.filter, options.history)
        return 0
    return run(options.bench, options.arguments, options.history)


if __name__ == "__main__":
    sys.exit(main())
