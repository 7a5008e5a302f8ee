"""What the tests of rows share."""

from __future__ import annotations

import pytest

from flownet import serialise

from . import halves


@pytest.fixture(autouse=True)
def _ship_shared_module_by_value() -> None:
    """Workers cannot import it."""
    serialise.ship_by_value(halves)
