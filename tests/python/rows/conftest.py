"""What the tests of rows share."""

from __future__ import annotations

import pytest

from flownet.internal import serialise

from . import halves, sums


@pytest.fixture(autouse=True)
def _ship_shared_modules_by_value() -> None:
    """Workers cannot import them."""
    serialise.ship_by_value(halves)
    serialise.ship_by_value(sums)
