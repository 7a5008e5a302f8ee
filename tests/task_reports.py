"""Write the Python classes of task reports from the Rust structs that fill them.

``python tests/task_reports.py`` writes ``python/flownet/observation/task_reports.py``. Fields, types and docstrings
come from the structs: serde's attributes say under which name a field is sent, and doc comments become docstrings.
A field that serde skips is not sent. Fields of a flattened struct count as fields of the struct that contains it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "python" / "flownet" / "observation" / "task_reports.py"
CRATES = [ROOT / "rust" / name / "src" for name in ("flownet-cluster", "flownet-runtime")]

CLASSES = {
    "OperatorReport": "OperatorReport",
    "VertexReport": "TaskReport",
    "TaskSample": "TaskSample",
}
"""Rust structs, with the names of their Python classes."""

REQUIRED = {
    "OperatorReport": [
        "name",
        "records_in",
        "rows_in",
        "records_out",
        "rows_out",
        "rows_in_per_second",
        "rows_out_per_second",
    ],
    "TaskReport": [
        "name",
        "parallelism",
        "records_in",
        "records_out",
        "records_per_second",
        "bytes_local",
        "bytes_tcp",
        "busy",
        "back_pressured",
        "idle",
        "busiest",
    ],
    "TaskSample": [
        "name",
        "task",
        "subtask",
        "worker",
        "ended",
        "seconds",
        "records_in",
        "records_out",
        "records_in_per_second",
        "records_out_per_second",
        "bytes_local",
        "bytes_tcp",
        "bytes_out",
        "dropped_records",
        "dropped_bytes",
        "send_buffers",
        "send_bytes",
        "receive_buffers",
        "receive_bytes",
        "pool_used",
        "pool_size",
        "in_pool_used",
        "in_pool_size",
        "busy",
        "back_pressured",
        "idle",
    ],
}
"""Fields without a default, which come first. The others have one, as older versions of flownet do not send them."""

DEFAULTS = {"int": "0", "float": "0.0"}
NUMBERS = {"u32": "int", "u64": "int", "i64": "int", "f64": "float", "bool": "bool", "String": "str", "Arc<str>": "str"}
SHOWN = {"seconds": "float", "optional_seconds": "float | None", "milliseconds": "float | None"}
"""Types that the functions of ``shown.rs`` make of a field."""

STRUCT = r"((?:^///[^\n]*\n)*)(?:^#\[[^\n]*\n)*^(?:pub )?struct {name} \{{\n(.*?)^\}}"
FIELD = re.compile(r"((?:^    ///[^\n]*\n)*)((?:^    #\[[^\n]*\n)*)^    (?:pub )?(\w+): ([^\n]+),\n", re.MULTILINE)
API_NAME = re.compile(r"[A-Z]\w*[a-z]\w*(?:\.\w+)?")
"""A class of the API or one of its methods, to which a docstring links."""

HEADER = '''"""Reports and samples of tasks, generated from Rust structs by ``tests/task_reports.py``."""

from __future__ import annotations

from dataclasses import dataclass

from ..metrics import UserMetric
'''


@dataclass(frozen=True)
class Field:
    """A field of a generated class."""

    name: str
    type: str
    doc: str

    def lines(self, *, is_required: bool) -> Iterator[str]:
        """Declare it, with its docstring."""
        default = "" if is_required else f" = {self._default()}"
        yield f"    {self.name}: {self.type}{default}"
        yield docstring(self.doc)

    def _default(self) -> str:
        if self.type.endswith("| None"):
            return "None"
        return "()" if self.type.startswith("tuple") else DEFAULTS[self.type]


def sources() -> str:
    """Return all Rust sources of the crates that define reports."""
    return "\n".join(path.read_text() for crate in CRATES for path in sorted(crate.rglob("*.rs")))


def struct(rust: str, name: str) -> tuple[str, str]:
    """Return the doc comment and the fields of a struct, as they are written."""
    found = re.findall(STRUCT.format(name=name), rust, re.MULTILINE | re.DOTALL)
    if len(found) != 1:
        raise SystemExit(f"{len(found)} Rust structs are named {name}: one is needed")
    doc, body = found[0]
    return doc, body


def fields(rust: str, name: str) -> Iterator[Field]:
    """Return the fields that serde sends for a struct."""
    for doc, attributes, rust_name, rust_type in FIELD.findall(struct(rust, name)[1]):
        if "#[serde(skip)]" in attributes:
            continue
        if "flatten" in attributes:
            remote = re.search(r'with = "(\w+)"', attributes)
            yield from fields(rust, remote[1] if remote else rust_type)
            continue
        if not doc:
            raise SystemExit(f"{name}::{rust_name} has no doc comment, which becomes the docstring in Python")
        renamed = re.search(r'rename = "(\w+)"', attributes)
        shown = re.search(r'serialize_with = "shown::(\w+)"', attributes)
        python_type = SHOWN[shown[1]] if shown else type_of(rust_type)
        yield Field(renamed[1] if renamed else rust_name, python_type, prose(doc)[0])


def type_of(rust_type: str) -> str:
    """Return the Python type of a Rust type."""
    if inner := re.fullmatch(r"Option<(.+)>", rust_type):
        return f"{type_of(inner[1])} | None"
    if inner := re.fullmatch(r"Vec<(\w+)>", rust_type):
        return f"tuple[{CLASSES.get(inner[1], inner[1])}, ...]"
    if rust_type not in NUMBERS:
        raise SystemExit(f"the Rust type {rust_type} has no Python type: add it to NUMBERS or SHOWN")
    return NUMBERS[rust_type]


def prose(doc: str) -> list[str]:
    """Return the paragraphs of a doc comment as text of a docstring."""
    text = "\n".join(line.strip().removeprefix("///").strip() for line in doc.splitlines())
    return [re.sub(r"`([^`]+)`", code, " ".join(part.split())) for part in text.split("\n\n")]


def code(match: re.Match[str]) -> str:
    """Mark code in a docstring: names of the API become links."""
    return f"`{match[1]}`" if API_NAME.fullmatch(match[1]) else f"``{match[1]}``"


def docstring(*paragraphs: str) -> str:
    """Return an indented docstring. The end of one with several paragraphs has a line of its own."""
    end = '\n    """' if len(paragraphs) > 1 else '"""'
    parts = [f'"""{paragraphs[0]}', *paragraphs[1:]]
    if len(paragraphs) == 1:
        parts[0] += end
    wrapped = "\n\n".join(
        textwrap.fill(part, 120, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
        for part in parts
    )
    return wrapped + end if len(paragraphs) > 1 else wrapped


def generate() -> str:
    """Return the text of the Python module."""
    rust = sources()
    lines = [HEADER]
    for rust_name, name in CLASSES.items():
        found = {field.name: field for field in fields(rust, rust_name)}
        required = REQUIRED[name]
        if missing := [one for one in required if one not in found]:
            raise SystemExit(f"Rust no longer sends {', '.join(missing)} of {name}: programs may use it")
        lines += ["", "@dataclass(frozen=True, slots=True)", f"class {name}:"]
        lines += [docstring(*prose(struct(rust, rust_name)[0])), ""]
        ordered = [*required, *(one for one in found if one not in required)]
        lines += [line for one in ordered for line in found[one].lines(is_required=one in required)]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(generate())
