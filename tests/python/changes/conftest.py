"""What the tests of changes share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from flownet.internal import serialise

from . import histories

# As those of event time.
settings.register_profile("event time", deadline=None, database=None)
settings.load_profile("event time")


@pytest.fixture(autouse=True, scope="session")
def _ship_shared_module_by_value() -> None:
    """Workers cannot import it."""
    serialise.ship_by_value(histories)
