"""Pages of HTML that open from disk: text, tables and drawings in one file that fetches nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from .tables import right_aligned


class Page:
    """Collects the parts of a page in the order in which they are read.

    Parameters
    ----------
    title
        Its heading, and what the browser calls it.
    subtitle
        One line below.
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title = title
        self._parts = [f"<header><h1>{html.escape(title)}</h1><p>{html.escape(subtitle)}</p></header>"]

    def contents(self, sections: Iterable[tuple[str, str]]) -> None:
        """Add a list of sections to go to, each by its heading and with what it says."""
        lines = (
            f'<li><a href="#{_anchor(heading)}">{html.escape(heading)}</a>: {html.escape(text)}</li>'
            for heading, text in sections
        )
        self._parts.append(f"<ul>{''.join(lines)}</ul>")

    def section(self, heading: str, text: str = "") -> None:
        """Begin a section."""
        self._parts.append(f'<h2 id="{_anchor(heading)}">{html.escape(heading)}</h2>')
        if text:
            self.text(text)

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def tiles(self, tiles: Iterable[tuple[str, str]]) -> None:
        """Add a row of values, each with its label."""
        shown = (f"<div><b>{html.escape(value)}</b><span>{html.escape(label)}</span></div>" for label, value in tiles)
        self._parts.append(f'<div class="tiles">{"".join(shown)}</div>')

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], marked: Iterable[int] = ()) -> None:
        """Add a table; columns of numbers are set to the right, and the others wrap.

        Parameters
        ----------
        columns
            Headings.
        rows
            Cells as text.
        marked
            Rows to stress, from 0.
        """
        body = [list(row) for row in rows]
        stressed = set(marked)
        right = right_aligned(body, len(columns))

        def line(cells: Sequence[str], tag: str, css: str = "") -> str:
            shown = (
                f"<{tag}{' class=n' if is_right else ''}>{html.escape(cell)}</{tag}>"
                for cell, is_right in zip(cells, right, strict=True)
            )
            return f"<tr{css}>{''.join(shown)}</tr>"

        lines = [line(row, "td", " class=m" if number in stressed else "") for number, row in enumerate(body)]
        head = f"<thead>{line(columns, 'th')}</thead>"
        self._parts.append(f'<div class="scroll"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>')

    def terms(self, pairs: Iterable[tuple[str, str]], summary: str = "") -> None:
        """Add terms with what they mean; with a summary, folded up behind it."""
        shown = "".join(f"<dt>{html.escape(term)}</dt><dd>{html.escape(text)}</dd>" for term, text in pairs)
        folded = f"<details><summary>{html.escape(summary)}</summary><dl>{shown}</dl></details>"
        self._parts.append(folded if summary else f"<dl>{shown}</dl>")

    def drawing(self, svg: str, label: str) -> None:
        """Add a drawing, given as an ``<svg>`` element, and what it shows for those who cannot see it."""
        self._parts.append(f'<figure role="img" aria-label="{html.escape(label)}">{svg}</figure>')

    def code(self, text: str) -> None:
        """Add text as it is, in type of one width."""
        self._parts.append(f"<pre>{html.escape(text)}</pre>")

    def html(self) -> str:
        """Give the whole page."""
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self._title)}</title><style>{_STYLE}</style></head>"
            f"<body><main>{''.join(self._parts)}</main></body></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the whole page into a file."""
        path.write_text(self.html(), encoding="utf-8")


def _anchor(heading: str) -> str:
    return html.escape("-".join(heading.split()))


_STYLE = """
:root { color-scheme: light; --ink: #1b1f24; --soft: #5b6570; --line: #dfe3e8; --back: #f6f7f9; --mark: #fff6dc; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 64px; }
header h1 { font-size: 28px; line-height: 1.2; margin: 0; }
header p { color: var(--soft); margin: 4px 0 20px; }
h2 { font-size: 19px; margin: 40px 0 8px; padding-top: 16px; border-top: 1px solid var(--line); }
p { max-width: 78ch; margin: 6px 0 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 16px 0; }
.tiles div { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.tiles b { display: block; font-size: 19px; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; background: #fff; border: 1px solid var(--line); border-radius: 8px; margin: 12px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 6px 14px; border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; }
td { min-width: 8rem; overflow-wrap: anywhere; }
tbody tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 600; }
.n { text-align: right; }
td.n { min-width: 0; white-space: nowrap; }
.m td { background: var(--mark); font-weight: 600; }
figure, pre { margin: 12px 0; background: #fff; border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; }
figure { padding: 12px; }
figure svg { width: 100%; min-width: 640px; height: auto; display: block; }
pre { padding: 12px 14px; font-size: 13px; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: 4px 16px; font-size: 14px; }
dt { font-weight: 600; overflow-wrap: anywhere; }
dd { margin: 0; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--soft); font-size: 14px; }
a { color: #0072b2; }
"""
