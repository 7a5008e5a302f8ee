"""Generates Python methods and the table of functions from the registry of expression functions.

Run ``python tests/python/rows/function_methods.py`` after a change of the registry and a build of the extension. A test
compares the files with what this script makes.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flownet import _flownet

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "python" / "flownet" / "rows" / "functions"
TABLE = ROOT / "docs" / "reference" / "functions.md"

ANNOTATIONS = {
    "string": "str",
    "number": "float",
    "float": "float",
    "integer": "int",
    "any": "Any",
    "bool": "bool",
    "timestamp": "datetime.datetime",
    "timestamp or date": "datetime.date",
    "timestamp or time": "datetime.datetime",
}
"""Python types of values that stand for a column."""

NOTE = "# Generated from the registry in rust/flownet-rows/src/expr/functions by `make functions`. Do not edit."


@dataclass(frozen=True)
class Family:
    """Functions that one generated module holds."""

    namespace: str
    module: str
    class_name: str
    heading: str
    summary: str


FAMILIES = [
    Family("value", "values", "ValueFunctions", "Methods of expressions", "Functions of numbers and of any values."),
    Family("str", "texts", "TextFunctions", "Methods of .str", "Functions of strings."),
    Family("dt", "times", "TimeFunctions", "Methods of .dt", "Functions of times."),
    Family("fn", "several", "", "Functions of several columns", "Functions of several columns."),
]


def documents() -> list[dict[str, Any]]:
    """Read the registry of the extension."""
    found: list[dict[str, Any]] = json.loads(_flownet.rows_functions())
    return found


def generated() -> dict[Path, str]:
    """Make all files, by their paths."""
    functions = documents()
    files = {TABLE: table(functions)}
    for family in FAMILIES:
        own = [function for function in functions if function["namespace"] == family.namespace]
        files[PACKAGE / f"{family.module}.py"] = module(family, own)
    return files


def module(family: Family, functions: list[dict[str, Any]]) -> str:
    """Make the module of a family."""
    written = [function for function in functions if not function["by_hand"]]
    code = [method(family, function) for function in written]
    body = "\n\n".join(textwrap.indent(text, "    ") for text in code) if family.class_name else "\n\n\n".join(code)
    outside = {r": datetime\.": "import datetime", r": Any\b": "from typing import Any"}
    imports = [line for pattern, line in outside.items() if re.search(pattern, body)]
    imports += ["", "from ..calls import " + ("Calls, E, check_bounds" if "check_bounds" in body else "Calls, E")]
    imports = imports if len(imports) > 2 else imports[1:]
    if not family.class_name:
        imports[-1] = "from ..expressions import Expr, call"
    lines = [NOTE, f'"""{family.summary}"""', "", "from __future__ import annotations", "", *imports, "", ""]
    if family.class_name:
        lines += [f"class {family.class_name}(Calls[E]):", f'    """{family.summary}"""', "", "    __slots__ = ()", ""]
    return "\n".join([*lines, body, ""])


def method(family: Family, function: dict[str, Any]) -> str:
    """Make a method, or a function of the module."""
    is_method = bool(family.class_name)
    result = "E" if is_method else "Expr"
    parameters = function["parameters"][1:] if is_method else function["parameters"]
    head = ["self"] if is_method else []
    passed, has_star = [], False
    for parameter in parameters:
        if parameter["keyword"] and not has_star:
            head.append("*")
            has_star = True
        head.append(declared(parameter, result))
        name = parameter["name"]
        prefix = "*" if parameter["repeated"] else f"{name}=" if parameter["keyword"] else ""
        passed.append(f"{prefix}{name}")
    full = function["name"] if family.namespace == "value" else f"{family.namespace}.{function['name']}"
    caller = "self._call" if is_method else "call"
    lines = [f"def {function['name']}({', '.join(head)}) -> {result}:", *docstring(function)]
    for parameter in parameters:
        if parameter["least"] is not None:
            shown = ", ".join(f"{{{other['name']}!r}}" for other in parameters)
            bounds = f"{parameter['least']}, {parameter['most']}"
            lines.append(f'    check_bounds(f"{full}({shown})", {parameter["name"]}, {bounds}, "{parameter["rule"]}")')
    return "\n".join([*lines, f"    return {caller}({', '.join([repr(full).replace(chr(39), chr(34)), *passed])})"])


def declared(parameter: dict[str, Any], result: str) -> str:
    """Declare a parameter with its type and default."""
    kind = ANNOTATIONS[parameter["kind"]]
    default = parameter["default"]
    if parameter["constant"]:
        annotation = f"{kind} | None" if default == "None" else kind
    else:
        annotation = kind if kind == "Any" else f"{kind} | {result} | None"
    star = "*" if parameter["repeated"] else ""
    return f"{star}{parameter['name']}: {annotation}" + (f" = {default}" if default is not None else "")


def docstring(function: dict[str, Any]) -> list[str]:
    """Write the docstring of a method."""
    first, _, rest = function["summary"].partition(". ")
    first = first.removesuffix(".")
    paragraphs = [
        *([rest] if rest else []),
        f"The result is {article(function['returns'])}." if function["returns"] != "same type" else "",
        f"Example: ``{function['example']}`` is ``{function['value']}``.",
    ]
    text = [line for paragraph in paragraphs if paragraph for line in ["", *wrapped(code_marked(paragraph))]]
    return [f'    """{code_marked(first)}.', *text, '    """']


def wrapped(paragraph: str) -> list[str]:
    """Break a paragraph into lines."""
    return textwrap.wrap(paragraph, 112, initial_indent="    ", subsequent_indent="    ", break_long_words=False)


def article(returns: str) -> str:
    """Put an article before the name of a type."""
    return f"{'an' if returns[0] == 'i' else 'a'} ``{returns}``"


def code_marked(text: str) -> str:
    """Mark code by two backticks, as docstrings do."""
    return text if "``" in text else text.replace("`", "``")


def table(functions: list[dict[str, Any]]) -> str:
    """Make the page of functions."""
    lines = ["# Functions of expressions", "", *INTRODUCTION]
    for family in FAMILIES:
        lines += ["", f"## {family.heading}", "", "| function | result | description | example | value |"]
        lines.append("|---|---|---|---|---|")
        lines += [row(function) for function in functions if function["namespace"] == family.namespace]
    return "\n".join([*lines, ""])


def row(function: dict[str, Any]) -> str:
    """Make the row of a function."""
    is_method = function["namespace"] != "fn"
    parameters = function["parameters"][1:] if is_method else function["parameters"]
    names = [f"*{one['name']}" if one["repeated"] else one["name"] for one in parameters]
    names = [
        name + (f"={one['default']}" if one["default"] is not None else "")
        for name, one in zip(names, parameters, strict=True)
    ]
    cells = [
        f"`{function['name']}({', '.join(names)})`",
        f"`{function['returns']}`" if function["returns"] != "same type" else "same type",
        function["summary"],
        f"`{function['example']}`",
        f"`{function['value']}`",
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


INTRODUCTION = [
    "This page lists the functions of [expressions](expressions.md). It is generated from the registry in Rust,",
    "like the Python methods.",
    "",
    "Rules for all functions:",
    "",
    "- The result is null if an argument is null, unless the description says otherwise.",
    "- Arguments are checked before anything runs. An error names the expression, the column and its type.",
    "- You can give a column or a value for an argument. Patterns, formats and units are values.",
    "- Floats follow IEEE 754: a value outside the domain of a function gives NaN, as in polars and DuckDB.",
    "- Integers do not wrap around: a result that does not fit ends the job with the row and its values.",
    "- Positions and lengths of strings are in characters (Unicode code points).",
]


def main() -> None:
    """Write all files."""
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
