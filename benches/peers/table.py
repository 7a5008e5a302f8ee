"""From single runs to the table: median [min-max], and the ratio to flownet in the same round.

``python benches/peers/table.py FILE ...`` makes the table of what ``run.py --json`` wrote, of several calls if need be.
"""

from __future__ import annotations

import json
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interface import REFERENCE, Row, Sample, Workload


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one row; a line of ``--json``."""

    workload: str
    peer: str
    name: str
    includes: str
    versions: str
    round: str
    """Names the round within all calls: ratios are taken within it."""
    sample: Sample | None
    failure: str | None
    machine: dict[str, Any]
    """Where and under which load, as `machine.describe` says."""

    @classmethod
    def of(
        cls, workload: Workload, row: Row, versions: str, round_name: str, result: Sample | str, machine: dict[str, Any]
    ) -> Record:
        """Make the record of a sample, or of the reason why there is none."""
        sample, failure = (None, result) if isinstance(result, str) else (result, None)
        return cls(workload.value, row.peer, row.name, row.includes, versions, round_name, sample, failure, machine)

    def to_json(self) -> str:
        """Write the record as one line."""
        unit = Workload(self.workload).unit
        return json.dumps(asdict(self) | {"unit": unit})

    @classmethod
    def from_json(cls, line: str) -> Record:
        """Read what `to_json` wrote."""
        fields = json.loads(line)
        del fields["unit"]
        if fields["sample"] is not None:
            percentiles = fields["sample"]["percentiles_us"]
            fields["sample"]["percentiles_us"] = tuple(percentiles) if percentiles else None
            fields["sample"] = Sample(**fields["sample"])
        return cls(**fields)


def render(records: Sequence[Record]) -> str:
    """Make the table of each workload, and say below it what each row includes."""
    parts = []
    for workload in Workload:
        rows: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            if record.workload == workload.value:
                rows.setdefault((record.peer, record.name), []).append(record)
        if rows:
            parts.append(_render_workload(workload, list(rows.values())))
    return "\n\n".join(parts)


def _render_workload(workload: Workload, rows: Sequence[Sequence[Record]]) -> str:
    references = {
        record.round: record.sample.value
        for row in rows
        for record in row
        if record.peer == REFERENCE and record.sample is not None
    }
    rounds = len({record.round for row in rows for record in row})
    is_latency = workload is Workload.LATENCY
    value = ["p50 us", "p99 us", "p99.9 us"] if is_latency else [workload.unit]
    head = ["", "peer", *value, f"/ {REFERENCE}", f"CPU-ns/{workload.item}", "peak RSS MB"]
    body, notes = [], []
    for number, row in enumerate(rows, 1):
        first = row[0]
        body.append([f"{number}", f"{first.peer}, {first.name}", *_cells(row, references, is_latency)])
        notes += _note(f"{number}", f"{first.includes}{f' ({first.versions})' if first.versions else ''}")
        for reason in sorted({record.failure for record in row if record.failure}):
            notes += _note("", f"not measured in {_rounds_of(row, reason)} of {rounds} rounds: {reason}")
    title = f"{workload.title}; median [min-max] of {rounds} round{'s' if rounds > 1 else ''}"
    return "\n".join([title, *_align([head, *body]), *notes])


def _rounds_of(row: Sequence[Record], reason: str) -> int:
    return sum(record.failure == reason for record in row)


def _note(number: str, text: str) -> list[str]:
    indent = f"{number:>3}  "
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent="     ", break_on_hyphens=False)


def _cells(row: Sequence[Record], references: dict[str, float], is_latency: bool) -> list[str]:
    samples = [(record.round, record.sample) for record in row if record.sample is not None]
    if not samples:
        return ["failed", *([""] * (5 if is_latency else 3))]
    if is_latency:
        triples = [sample.percentiles_us for _, sample in samples if sample.percentiles_us]
        cells = [_spread(column, _figures) for column in zip(*triples, strict=True)]
    else:
        cells = [_spread([sample.value for _, sample in samples], _rate)]
    ratios = [sample.value / references[name] for name, sample in samples if name in references]
    cpu = [sample.cpu_ns_per_record for _, sample in samples if sample.cpu_ns_per_record is not None]
    rss = [sample.peak_rss_mb for _, sample in samples if sample.peak_rss_mb is not None]
    return [*cells, _spread(ratios, lambda ratio: f"{ratio:.3g}"), _spread(cpu, _figures), _spread(rss, _figures)]


def _spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    if not values:
        return "-"
    if min(values) == max(values):
        return show(values[0])
    return f"{show(statistics.median(values))} [{show(min(values))}-{show(max(values))}]"


def _rate(value: float) -> str:
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def _figures(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _align(lines: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        yield "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()


_WIDTH = 118

if __name__ == "__main__":
    found = []
    for path in sys.argv[1:]:
        with open(path) as lines_of_file:
            found += [Record.from_json(text_line) for text_line in lines_of_file if text_line.startswith("{")]
    print(render(found))
