"""What the tests of checkpoints share."""

from __future__ import annotations

import pytest

from flownet.internal import serialise

from . import failures, nexmark_jobs


@pytest.fixture(autouse=True, scope="session")
def _ship_shared_modules_by_value() -> None:
    """Workers cannot import them."""
    serialise.ship_by_value(failures)
    serialise.ship_by_value(nexmark_jobs)
