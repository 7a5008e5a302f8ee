"""Pictures are shown and described, and are those that the programs beside them draw."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def shown() -> list[tuple[str, Path]]:
    """Return the description and the file of each picture on a page."""
    found = [(page, *match) for page in PAGES for match in re.findall(r"!\[(.+?)\]\(((?!http).+?)\)", page.read_text())]
    return [(description, (page.parent / path).resolve()) for page, description, path in found]


def test_every_picture_is_on_a_page() -> None:
    files = {path.resolve() for path in PICTURES.iterdir() if path.suffix in {".svg", ".png"}}
    assert {path for _, path in shown() if path.parent == PICTURES.resolve()} == files


def test_pictures_are_described_as_they_are_titled() -> None:
    for description, path in shown():
        if path.suffix == ".svg":
            assert f"<title>{description}</title>" in path.read_text()


@pytest.mark.parametrize("program", ["draw_time.py", "draw_benchmarks.py"])
def test_programs_draw_the_pictures_that_are_there(program: str, tmp_path: Path) -> None:
    shutil.copy(PICTURES / program, tmp_path)
    subprocess.run([sys.executable, tmp_path / program], check=True)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert drawn
    for path in drawn:
        assert path.read_text() == (PICTURES / path.name).read_text(), f"run python docs/pictures/{program}"


def test_figures_of_the_chart_are_in_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PICTURES))
    import draw_benchmarks  # type: ignore[import-not-found]

    pages = re.sub(r"\s+", " ", "\n".join(page.read_text() for page in DOCS.rglob("*.md")))
    for bars in draw_benchmarks.PANELS.values():
        for bar in bars:
            assert bar.source in pages, bar
