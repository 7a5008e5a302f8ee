"""What CI compiles once it does not compile again: one crate with other features is another crate to cargo."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def crates(*selected: str, edges: str) -> set[str]:
    """List the crates that a command builds for these packages, each with the features that it has then."""
    command = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p} {f}", "--edges", edges, *selected]
    tree = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return {line.removesuffix(" (*)").strip() for line in tree.splitlines() if line}


def test_benches_build_no_crate_of_the_extension_again() -> None:
    found = re.search(r"^BENCHES := (.+)$", MAKEFILE, re.MULTILINE)
    assert found is not None
    extension = crates("-p", "flownet-python", edges="normal,build")
    assert len(extension) > 100
    assert extension - crates(*found[1].split(), edges="normal,build,dev") == set()
