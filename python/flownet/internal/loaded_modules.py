"""Modules that the program has imported, for code that knows their types without needing them."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


def loaded(name: str) -> ModuleType | None:
    """Return a module that the program has imported, or None; waits for a thread that still imports it."""
    return importlib.import_module(name) if sys.modules.get(name) is not None else None
