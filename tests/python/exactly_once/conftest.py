"""What the tests of checkpoints share."""

from __future__ import annotations

import pytest

from flownet import serialise

from . import disturbed


@pytest.fixture(autouse=True, scope="session")
def _ship_shared_module_by_value() -> None:
    """Workers cannot import it."""
    serialise.ship_by_value(disturbed)
