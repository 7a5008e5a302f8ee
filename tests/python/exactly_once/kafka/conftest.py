"""The broker that the tests share. It takes seconds to start, so its tests are in one process."""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .broker import Broker

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session")
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[Broker]:
    """A broker that runs."""
    if importlib.util.find_spec("confluent_kafka") is None:
        _cannot("needs confluent-kafka: pip install --group tools")
    from .broker import VERSION, Broker, NoJars, jars, what_is_missing

    if missing := what_is_missing():
        _cannot(missing)
    assert request.config.cache is not None
    try:
        found = jars(Path(request.config.cache.mkdir(f"kafka-{VERSION}")))
    except NoJars as error:
        _cannot(f"the jars of the broker cannot be had: {error}")
    broker = Broker(tmp_path_factory.mktemp("kafka"), found, free_ports(3))
    yield broker
    broker.close()


def _cannot(why: str) -> None:
    """Leave the tests out, but where a suite has to be whole."""
    if os.environ.get("CI"):
        pytest.fail(f"no broker of Kafka: {why}")
    pytest.skip(why)


_NUMBERS = itertools.count()


@pytest.fixture
def topic(kafka: Broker, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes topics with names of their own."""

    def topic(partitions: int = 2, **settings: str) -> str:
        return kafka.create(f"topic-{next(_NUMBERS)}", partitions, **settings)

    return topic
