"""What the guide and the docstrings show is true."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from types import ModuleType

import pytest

import flownet as fn
from flownet import testing
from flownet.testing import harness, script

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "test-a-job.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL))
def test_the_examples_of_the_guide_run(block: str) -> None:
    exec(block, {"__name__": "guide"})


@pytest.mark.parametrize("module", [testing, harness, script])
def test_the_examples_of_the_docstrings_run(module: ModuleType) -> None:
    for example in doctest.DocTestFinder(exclude_empty=True).find(module):
        assert doctest.DocTestRunner().run(example).failed == 0, example.name


def test_everything_of_a_harness_is_in_the_guide() -> None:
    public = [name for name in vars(testing.Harness) if not name.startswith("_") and name != "close"]
    missing = [name for name in public if not re.search(rf"`{name.removesuffix('_emitted')}\b", GUIDE)]
    assert not missing


def test_everything_public_is_documented() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__doc__, name
    assert fn.Environment.from_script.__doc__
