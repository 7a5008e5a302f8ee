"""A hook of mkdocs: adds files from outside this folder to the site, and summaries to the API reference.

ARCHITECTURE.md becomes a page. Other files that pages link to become plain text. Each group of names in the API
reference begins with a list of these names and the first lines of their docstrings.
"""

from __future__ import annotations

import ast
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
GROUP = re.compile(r"^## .+\n(?:(?!## ).*\n?)*", re.MULTILINE)
NAMED = re.compile(r"^::: (?P<module>flownet[\w.]*)\.(?P<name>\w+)$", re.MULTILINE)
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


def home(module: str, name: str) -> str:
    """Return the module that defines a public name. The stub of a package says where its names come from."""
    package = ROOT / "python" / module.replace(".", "/")
    stub = package / "__init__.pyi"
    if stub.is_file():
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
                return f"{module}.{node.module}"
    return module


def summary(module: str, name: str) -> str:
    """Return the first line of the docstring of a class or function, or nothing for a module."""
    path = ROOT / "python" / home(module, name).replace(".", "/")
    for file in [path.with_suffix(".py")] if path.with_suffix(".py").is_file() else sorted(path.glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
    return ""


def summarized(markdown: str) -> str:
    """Return a page of the API reference with a list at the beginning of each group of names."""

    def with_list(group: re.Match[str]) -> str:
        names = [
            f"- [`{found['name']}`][{found['module']}.{found['name']}]: {summary(found['module'], found['name'])}"
            for found in NAMED.finditer(group[0])
        ]
        heading, rest = group[0].split("\n", 1)
        return "\n".join([heading, "", *names, "", rest]) if names else group[0]

    return GROUP.sub(with_list, markdown)


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

    if folder == "api":
        markdown = summarized(markdown)
    return UPWARD.sub(rewritten, markdown)
