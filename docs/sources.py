"""A hook of mkdocs: pages link to files beside this folder, which the site takes along as text."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
UPWARD = re.compile(r"\]\((?P<path>(?:\.\./)+[^)#]+)\)")


def outside(page: str, link: str) -> str | None:
    """Return where a link of a page leads, from the root of the repository, if that is not in this folder."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith(("docs/", "../")) else path


def on_files(files: Files, config: Any) -> Files:
    """Add the files that are linked to. One that is not there stays a link that is checked, and found missing."""
    pages = {file.src_uri: (ROOT / "docs" / file.src_uri).read_text() for file in files.documentation_pages()}
    links = {outside(page, found["path"]) for page, text in pages.items() for found in UPWARD.finditer(text)}
    for path in sorted(link for link in links if link is not None):
        if (ROOT / path).is_file():
            files.append(File.generated(config, f"sources/{path}.txt", content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Link to these."""
    here = page.file.src_uri

    def rewritten(found: re.Match[str]) -> str:
        path = outside(here, found["path"])
        if path is None:
            return found[0]
        return f"]({posixpath.relpath(f'sources/{path}.txt', posixpath.dirname(here) or '.')})"

    return UPWARD.sub(rewritten, markdown)
