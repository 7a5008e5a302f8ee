"""Modules that another thread imports at this moment are waited for."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from flownet.internal.loaded_modules import loaded

SLOW = """
import threading
begun, may_end = threading.Event(), threading.Event()
begun.set()
may_end.wait(30)
ready = True
"""


def test_a_module_that_is_being_imported_is_seen_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_slowly.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    assert loaded("imported_slowly") is None, "nothing is imported that the program has not"
    importer = threading.Thread(target=lambda: __import__("imported_slowly"))
    importer.start()
    while "imported_slowly" not in sys.modules or not hasattr(sys.modules["imported_slowly"], "begun"):
        importer.join(0.01)
    half = sys.modules["imported_slowly"]
    assert not hasattr(half, "ready")
    seen = list[bool]()
    looker = threading.Thread(target=lambda: seen.append(hasattr(loaded("imported_slowly"), "ready")))
    looker.start()
    half.may_end.set()
    looker.join()
    importer.join()
    assert seen == [True]
    del sys.modules["imported_slowly"]
