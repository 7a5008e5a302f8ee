"""Tables, in a terminal and on a page."""

from __future__ import annotations

from flownet.internal.pages import Page
from flownet.internal.tables import text_table

ROWS = [
    ["control", "kept", "in flight", "verdict"],
    ["credit", "100%", "1.23 MB", "nothing lost"],
    ["tcp", "2%", "-", "B.3 <starves>"],
]


def test_columns_of_numbers_are_set_to_the_right_and_others_to_the_left() -> None:
    assert text_table(ROWS) == [
        "control  kept  in flight  verdict",
        "credit   100%    1.23 MB  nothing lost",
        "tcp        2%          -  B.3 <starves>",
    ]


def test_a_page_sets_the_same_columns_to_the_right_and_escapes_what_it_shows() -> None:
    page = Page("<A> & B")
    head, *rows = ROWS
    page.table(head, rows, marked=[1])
    text = page.html()
    assert "<title>&lt;A&gt; &amp; B</title>" in text
    assert "<th>control</th><th class=n>kept</th><th class=n>in flight</th><th>verdict</th>" in text
    assert "<tr class=m><td>tcp</td><td class=n>2%</td><td class=n>-</td><td>B.3 &lt;starves&gt;</td></tr>" in text


def test_sections_can_be_gone_to_from_the_contents() -> None:
    page = Page("A page")
    page.contents([("head of line", "it starves.")])
    page.section("head of line")
    text = page.html()
    assert '<a href="#head-of-line">head of line</a>: it starves.' in text
    assert '<h2 id="head-of-line">' in text
