"""Draws the pictures of windows and watermarks: ``python docs/pictures/draw_time.py`` writes them beside itself.

A test holds the files against this program: see tests/python/docs/test_pictures.py.
"""

from __future__ import annotations

from pathlib import Path

STYLE = """
text{font:14px system-ui,sans-serif;fill:#222}.soft{fill:#667}.box{fill:#fff;stroke:#556;stroke-width:1.5}
.line{fill:none;stroke:#556;stroke-width:1.5}.room{fill:#2f6fd018;stroke:#2f6fd0;stroke-width:1.5;stroke-dasharray:4 3}
.other{fill:#2a9d8f18;stroke:#2a9d8f;stroke-width:1.5;stroke-dasharray:4 3}
.mark{stroke:#c8443f;stroke-width:2.5;fill:none}
.rec{fill:#8a93a5}.new{fill:#2a9d8f}.late{fill:#c8443f}
@media (prefers-color-scheme:dark){text{fill:#e8eaee}.soft{fill:#a3abb8}.box{fill:#1d2128;stroke:#9aa}
.line{stroke:#9aa}}
"""
ARROW = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#778"/></marker></defs>'
)
WIDTH, LEFT, UNIT = 730, 60, 27
"""Width of a picture; where second 0 is; pixels a second."""


def at(second: float) -> float:
    """Return where a second is on the time line."""
    return LEFT + second * UNIT


def text(x: float, y: float, words: str, anchor: str = "middle", css: str = "soft") -> str:
    """Draw words."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{css}">{words}</text>'


def time_line(y: float, end: int = 20, step: int = 5) -> str:
    """Draw the arrow of event time with its numbers."""
    marks = [f'<path class="line" d="M{at(second):g} {y - 6}v12"/>' for second in range(0, end + 1, step)]
    numbers = [text(at(second), y + 24, f"{second} s") for second in range(0, end + 1, step)]
    arrow = f'<path class="line" marker-end="url(#a)" d="M20 {y}L{at(end) + 40:g} {y}"/>'
    return "\n".join([arrow, text(at(end) + 46, y + 5, "event time", "start"), *marks, *numbers])


def window(start: float, end: float, y: float, height: float, words: str, css: str = "room") -> str:
    """Draw a window with its result below its upper edge."""
    box = f'<rect class="{css}" x="{at(start):g}" y="{y}" width="{(end - start) * UNIT:g}" height="{height}" rx="5"/>'
    return "\n".join([box, text(at((start + end) / 2), y + 18, words)])


def records(seconds: list[float], y: float, css: str = "rec") -> str:
    """Draw a record at each of these seconds."""
    return "\n".join(f'<circle class="{css}" cx="{at(second):g}" cy="{y}" r="7"/>' for second in seconds)


def picture(title: str, height: int, *shapes: str) -> str:
    """Put shapes together to a file."""
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">'
    return "\n".join([head, f"<title>{title}</title>", f"<style>{STYLE}</style>{ARROW}", *shapes, "</svg>", ""])


CLICKS = [1, 3, 4, 9, 11, 12, 18]
"""Seconds of the clicks that the first three pictures show."""


def tumbling() -> str:
    """Draw windows that follow each other."""
    counts = ((0, "3 clicks"), (5, "1 click"), (10, "2 clicks"), (15, "1 click"))
    windows = [window(start, start + 5, 20, 74, count) for start, count in counts]
    title = "Tumbling windows of 5 s: each record is in one window"
    return picture(title, 146, *windows, records(CLICKS, 66), time_line(106))


def sliding() -> str:
    """Draw windows that overlap, in two rows. The first and the last are cut off at the edges."""
    windows = []
    for number, start in enumerate(range(-5, 20, 5)):
        clicks = sum(start <= second < start + 10 for second in CLICKS)
        words = f"{clicks} click{'s'[: clicks != 1]}"
        css = ("other", "room")[number % 2]
        windows.append(window(max(start, -1.5), min(start + 10, 21.5), 16 + 34 * (number % 2), 28, words, css))
    title = "Sliding windows of 10 s that start every 5 s: each record is in two windows"
    return picture(title, 162, *windows, records(CLICKS, 100), time_line(122))


def session() -> str:
    """Draw windows that end with a pause."""
    windows = [window(1, 7, 20, 74, "3 clicks"), window(9, 15, 20, 74, "3 clicks"), window(18, 21, 20, 74, "1 click")]
    title = "Sessions with a gap of 3 s: a pause of 3 s ends a session"
    return picture(title, 146, *windows, records(CLICKS, 66), time_line(106))


def late() -> str:
    """Draw a record that comes after its window has fired."""
    shapes = [
        window(0, 10, 24, 74, "fired with 3 clicks"),
        records([2, 4, 8], 66),
        records([11.5, 14], 66, "new"),
        records([6], 84, "late"),
        f'<path class="mark" d="M{at(12):g} 20v86"/>',
        text(at(12) + 6, 34, "watermark 12 s", "start", ""),
        text(at(14.6), 70, "the click of second 14 moved it", "start"),
        f'<path class="line" marker-end="url(#a)" d="M{at(6):g} 150V94"/>',
        text(at(6) + 8, 166, "arrives now: late, as the watermark has passed 10 s", "middle", ""),
        time_line(106),
    ]
    return picture("A record is late if the watermark has passed the end of its window", 178, *shapes)


PICTURES = {"tumbling": tumbling, "sliding": sliding, "session": session, "late": late}
"""Name of each file, and the function that draws it."""

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(__file__).parent / f"{name}.svg").write_text(draw(), encoding="utf-8")
