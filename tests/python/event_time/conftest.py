"""What the tests of event time share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from flownet.internal import serialise

from . import comparing, scripted, streams

# No deadline: a busy machine is no failure. No database: tests leave nothing in the working tree.
settings.register_profile("event time", deadline=None, database=None)
settings.load_profile("event time")


@pytest.fixture(autouse=True, scope="session")
def _ship_shared_modules_by_value() -> None:
    """Workers cannot import them."""
    for module in (comparing, scripted, streams):
        serialise.ship_by_value(module)
