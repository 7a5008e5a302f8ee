"""A hook of mkdocs: adds files from outside this folder to the site.

ARCHITECTURE.md becomes a page. Other files that pages link to become plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OVERVIEW = "ARCHITECTURE.md"
OVERVIEW_PAGE = "dev/architecture.md"
UPWARD = re.compile(r"\]\((?P<path>(?:\.\./)+[^)#]+)(?P<anchor>#[^)]*)?\)")
RELATIVE = re.compile(r"\]\((?!https?:|#)(?P<path>[^)]+)\)")


def outside(page: str, link: str) -> str | None:
    """Return the path of a link from the root of the repository, if it leads out of this folder."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith(("docs/", "../")) else path


def overview() -> str:
    """Return ARCHITECTURE.md with links that fit its place in the site."""
    folder = posixpath.dirname(f"docs/{OVERVIEW_PAGE}")
    text = (ROOT / OVERVIEW).read_text()
    return RELATIVE.sub(lambda found: f"]({posixpath.relpath(found['path'], folder)})", text)


def on_files(files: Files, config: Any) -> Files:
    """Add the overview and the files that pages link to. The check of links finds missing ones."""
    pages = {file.src_uri: (ROOT / "docs" / file.src_uri).read_text() for file in files.documentation_pages()}
    pages[OVERVIEW_PAGE] = overview()
    files.append(File.generated(config, OVERVIEW_PAGE, content=pages[OVERVIEW_PAGE]))
    links = {outside(page, found["path"]) for page, text in pages.items() for found in UPWARD.finditer(text)}
    for path in sorted(link for link in links if link not in (None, OVERVIEW)):
        if (ROOT / path).is_file():
            files.append(File.generated(config, f"sources/{path}.txt", content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Link to the added files."""
    here = page.file.src_uri
    folder = posixpath.dirname(here) or "."

    def rewritten(found: re.Match[str]) -> str:
        path = outside(here, found["path"])
        if path is None:
            return found[0]
        if path == OVERVIEW:
            return f"]({posixpath.relpath(OVERVIEW_PAGE, folder)}{found['anchor'] or ''})"
        return f"]({posixpath.relpath(f'sources/{path}.txt', folder)})"

    return UPWARD.sub(rewritten, markdown)
