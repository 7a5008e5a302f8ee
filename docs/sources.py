"""A hook of mkdocs: pages link to files beside this folder, which the site takes along as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\]\(\.\./(?P<path>(?!docs/)[^)#]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the files that are linked to. One that is not there stays a link that is checked, and found missing."""
    texts = [(ROOT / "docs" / file.src_uri).read_text() for file in files.documentation_pages()]
    for path in sorted({found["path"] for text in texts for found in OUTSIDE.finditer(text)}):
        if (ROOT / path).is_file():
            files.append(File.generated(config, f"sources/{path}.txt", content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link to these."""
    return OUTSIDE.sub(r"](sources/\g<path>.txt)", markdown)
