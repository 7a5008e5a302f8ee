"""Report: one page with everything in it, that opens from disk and asks nothing of the network."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from html import escape

from . import plots
from .controls import CONTROLS
from .machine import machine, versions
from .scenario import Result, Scenario
from .settings import described

Answer = tuple[Scenario, Sequence[Result]]


def page(answers: Sequence[Answer], command: str) -> str:
    """Write the page.

    Parameters
    ----------
    answers
        Scenarios with their results.
    command
        How they were run.
    """
    title = "flownet laboratory" if len(answers) > 1 else f"flownet laboratory: {answers[0][0].name}"
    shown = [name for name in CONTROLS if any(result.control == name for _, results in answers for result in results)]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        "<p>Real worker processes, real sockets; sampled by counters beside the engine, in the tasks themselves.</p>",
        *_contents(answers),
        "<h2>Ways of controlling flow</h2>",
        _list((name, CONTROLS[name].how) for name in shown),
        *(part for scenario, results in answers for part in _section(scenario, results)),
        "<h2>How it was run</h2>",
        _list(
            (
                ("command", command),
                ("when", datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")),
                ("machine", machine()),
                ("versions", versions()),
            )
        ),
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _contents(answers: Sequence[Answer]) -> list[str]:
    if len(answers) == 1:
        return []
    lines = (
        f'<li><a href="#{scenario.name}">{scenario.name}</a>: {escape(scenario.finding(results))}.</li>'
        for scenario, results in answers
    )
    return ["<ul>", *lines, "</ul>"]


def _section(scenario: Scenario, results: Sequence[Result]) -> list[str]:
    finding = scenario.finding(results)
    picture = base64.b64encode(plots.written(scenario.draw(results), "svg")).decode()
    head, *rows = scenario.table(results)
    return [
        f'<section id="{scenario.name}">',
        f"<h2>{scenario.name}</h2>",
        f"<p><b>{escape(scenario.question)}</b> {escape(finding)}.</p>",
        f'<figure><img alt="{escape(finding)}" src="data:image/svg+xml;base64,{picture}"></figure>',
        '<div class="table"><table>',
        _row("th", head),
        *(_row("td", row) for row in rows),
        "</table></div>",
        f"<details><summary>settings</summary>{_settings(scenario)}</details>",
        "</section>",
    ]


def _settings(scenario: Scenario) -> str:
    meaning = {name: (written, help) for name, written, help in described(type(scenario))}
    lines = []
    for field in fields(scenario):
        written, help = meaning[field.name]
        value = getattr(scenario, field.name)
        lines.append((f"{field.name}={written if value == field.default else value}", help))
    return _list(lines)


def _list(pairs: Iterable[tuple[str, str]]) -> str:
    items = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs)
    return f"<dl>{''.join(items)}</dl>"


def _row(cell: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{escape(text)}</{cell}>" for text in texts) + "</tr>"


_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #1d1d1d; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
figure, .table { margin: 1rem 0; overflow-x: auto; }
img { display: block; width: 100%; min-width: 40rem; height: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid #e3e3e3; text-align: right; white-space: nowrap; }
th { color: #555; font-weight: 600; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td:first-child { font-weight: 600; }
td:last-child { white-space: normal; min-width: 14rem; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .25rem 1rem; font-size: .9rem; }
dt { font-weight: 600; overflow-wrap: anywhere; }
dd { margin: 0; overflow-wrap: anywhere; }
summary { cursor: pointer; color: #555; font-size: .9rem; }
a { color: #0072b2; }
"""
