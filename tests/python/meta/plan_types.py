"""Writes `flownet.planning.spec`, the types of plans in Python, from the Rust enums and structs that read plans.

Run it after a change in Rust: ``python tests/python/meta/plan_types.py``. `test_plan_types.py` finds a forgotten run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
WRITTEN = ROOT / "python" / "flownet" / "planning" / "spec.py"
RUNTIME = ROOT / "rust" / "flownet-runtime" / "src"

TYPES = {
    "time.rs": ["Clock"],
    "window/calendar.rs": ["CalendarUnit"],
    "watermark.rs": ["Watermarks"],
    "watermark/alignment.rs": ["Alignment"],
    "source/pace.rs": ["RateUnit", "RateLimit"],
    "spec/window.rs": ["WindowAssigner", "TriggerWhen", "TriggerSpec", "WindowSpec"],
    "spec/operator.rs#1": ["Field", "Fold", "InvalidUtf8", "LineFormat", "ProcessInputs"],
    "spec/rows.rs": ["RowFormat", "RowsRank", "RowsLate", "RowsJoin", "RowsKind"],
    "spec/operator.rs#2": ["OperatorKind"],
}
"""The types of a plan by their file, each after those that it uses."""

PREFIXES = {"OperatorKind": "", "WindowAssigner": "Window"}
"""What names of variants begin with in Python. Default: the name of the enum."""

PLAIN = {
    "String": "str",
    "char": "str",
    "Tz": "str",
    "bool": "bool",
    "f64": "float",
    "Value": "Any",
    "FilePath": "bytes",
    "BTreeMap<String, String>": "dict[str, str]",
    "TextSplit": "object",
    **dict.fromkeys(("u16", "u32", "u64", "i64", "NonZeroU16", "NonZeroU32", "NonZeroU64"), "int"),
}
"""Rust types that are other types in JSON. The planner makes text splits, so Python never writes one."""


@dataclass
class Member:
    """A field of a struct, or a variant of an enum."""

    name: str
    doc: str
    type: str | None = None
    """Type of a field, or of the value in a variant of one value."""
    may_be_left_out: bool = False
    fields: list[Member] | None = None
    """Fields of a variant that has them by name."""


@dataclass
class Definition:
    """A struct or an enum."""

    kind: str
    name: str
    doc: str
    is_untagged: bool
    members: list[Member] = field(default_factory=list)


def read() -> list[Definition]:
    """Read the definitions from the Rust source."""
    found: list[Definition] = []
    for file, names in TYPES.items():
        source = (RUNTIME / file.partition("#")[0]).read_text()
        found.extend(definition(source, name) for name in names)
    return found


def definition(source: str, name: str) -> Definition:
    """Read the definition of one type, in the layout of rustfmt."""
    found = re.search(rf"((?:^(?:///|#\[)[^\n]*\n)+)^pub (struct|enum) {name} \{{\n(.*?)^\}}", source, re.M | re.S)
    assert found is not None, f"{name} is not in its file any more"
    above, kind, body = found.groups()
    attributes = serde(above)
    is_untagged = "untagged" in attributes
    known = {"rename_all = snake_case", "deny_unknown_fields", "untagged"}
    assert attributes <= known, f"{name}: {attributes - known}"
    assert kind == "struct" or is_untagged or "rename_all = snake_case" in attributes, f"{name} has other names in JSON"
    read_members = fields_of if kind == "struct" else variants_of
    return Definition(kind, name, doc_of(above), is_untagged, read_members(body))


def serde(lines: str) -> set[str]:
    """List the attributes of serde above a definition or a member."""
    given = re.findall(r"#\[serde\((.*?)\)\]", lines)
    return {part.replace('"', "").strip() for attribute in given for part in attribute.split(",")}


def doc_of(lines: str) -> str:
    """Return the first sentence of a doc comment."""
    text = re.sub(r"\[(`\w+`)\]", r"\1", " ".join(re.findall(r"^\s*/// ?(.*)$", lines, re.M)))
    return re.split(r"(?<=\.)\s", text)[0].rstrip(":")


def fields_of(body: str) -> list[Member]:
    """Read named fields, of a struct or of a variant."""
    members: list[Member] = []
    for above, name, kind in re.findall(r"((?:^\s*(?:///|#\[).*\n)*)^\s*(?:pub )?(\w+): (.+),$", body, re.M):
        attributes = serde(above)
        custom = {part for part in attributes if re.match(r"(de)?serialize_with", part)}
        left = attributes - custom - {"default", "default = yes"}
        assert not left, f"{name}: {left}"
        members.append(Member(name, doc_of(above), kind, any(part.startswith("default") for part in attributes)))
    return members


def variants_of(body: str) -> list[Member]:
    """Read the variants of an enum."""
    pattern = (
        r"((?:^ {4}(?:///|#\[)[^\n]*\n)*)^ {4}([A-Z]\w*)"
        r"(?:(?P<unit>,)|\((?P<value>[^\n]+)\),|(?P<empty> \{\},)| \{\n(?P<fields>.*?)^ {4}\},)$"
    )
    members: list[Member] = []
    for found in re.finditer(pattern, body, re.M | re.S):
        member = Member(found[2], doc_of(found[1]), found["value"])
        if found["empty"] or found["fields"] is not None:
            member.fields = fields_of(found["fields"] or "")
        members.append(member)
    assert len(members) == len(re.findall(r"^ {4}[A-Z]", body, re.M))
    return members


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def in_python(kind: str, names: set[str]) -> str:
    """Return the Python type of a Rust type, as JSON has it."""
    if kind in PLAIN:
        return PLAIN[kind]
    if option := re.fullmatch(r"Option<(.+)>", kind):
        return f"{in_python(option[1], names)} | None"
    if boxed := re.fullmatch(r"Box<(.+)>", kind):
        return in_python(boxed[1], names)
    if several := re.fullmatch(r"Vec<(.+)>|\[(.+); \d+\]", kind):
        return f"list[{in_python(several[1] or several[2], names)}]"
    assert kind in names, f"there is no type in Python for {kind}"
    return kind


def render(definitions: list[Definition]) -> str:
    """Write the Python module."""
    names = {each.name for each in definitions}
    parts: list[str] = []
    for each in definitions:
        if each.kind == "struct":
            parts.append(typed_dict(each.name, each.doc, each.members, names))
        else:
            parts.extend(enum(each, names))
    return HEADER + "\n\n".join(parts)


def enum(each: Definition, names: set[str]) -> list[str]:
    """Write an enum: a class for each variant with fields, one for all of these, and the names of the others."""
    if each.is_untagged:
        kinds = " | ".join(in_python(str(member.type), names) for member in each.members)
        return [f'{each.name} = {kinds}\n"""{each.doc}"""\n']
    prefix = PREFIXES.get(each.name, each.name)
    parts: list[str] = []
    tagged: list[Member] = []
    for member in each.members:
        if member.fields is not None:
            parts.append(typed_dict(f"{prefix}{member.name}", member.doc, member.fields, names))
            tagged.append(Member(snake(member.name), member.doc, f"{prefix}{member.name}"))
        elif member.type is not None:
            tagged.append(Member(snake(member.name), member.doc, in_python(member.type, names)))
    plain = [f'"{snake(member.name)}"' for member in each.members if member.fields is None and member.type is None]
    whole = f"{each.name}Map" if plain else each.name
    if tagged:
        doc = f"{each.doc.rstrip('.')}: exactly one of these, with its settings."
        lines = [f"class {whole}(TypedDict, total=False):", f'    """{doc}"""', ""]
        parts.append("\n".join([*lines, *(f"    {member.name}: {member.type}" for member in tagged), ""]))
    if plain:
        union = f"Literal[{', '.join(plain)}]" + (f" | {whole}" if tagged else "")
        parts.append(f'{each.name} = {union}\n"""{each.doc}"""\n')
    return parts


def typed_dict(name: str, doc: str, fields: list[Member], names: set[str]) -> str:
    """Write a class for settings by name."""
    lines = [f"class {name}(TypedDict):", f'    """{doc}"""', ""]
    for member in fields:
        kind = in_python(str(member.type), names)
        lines.append(f"    {member.name}: {f'NotRequired[{kind}]' if member.may_be_left_out else kind}")
    return "\n".join([*lines, ""])


def formatted(text: str) -> str:
    """Format the module as the rest of the package."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(WRITTEN), "-"]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True, cwd=ROOT).stdout


HEADER = '''"""The types of a plan: settings of operators, as the planner in Rust reads them.

Written by ``tests/python/meta/plan_types.py`` from ``rust/flownet-runtime/src/spec``; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

'''

if __name__ == "__main__":
    WRITTEN.write_text(formatted(render(read())))
