"""Executors whose Python lacks flownet: named at the start, or served by an archive."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet.errors import ConfigError

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with all packages of this one, such as pyarrow, but flownet."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder)
    (packages,) = folder.glob("lib/python3*/site-packages")
    found = Path(sysconfig.get_paths()["purelib"])
    for entry in found.iterdir():
        if not entry.name.startswith(("flownet", "_flownet", "cloudpickle")) and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    python = str(folder / "bin" / "python")
    ended = subprocess.run([python, "-c", "import flownet"], capture_output=True, text=True, check=False)
    assert "No module named 'flownet'" in ended.stderr, "the fixture is of no use"
    return python


def run(python: str, *archives: str) -> str:
    """Run a job on executors with this Python, and say how it ended."""
    environment = dict(os.environ, PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=sys.executable)
    environment.pop("PYTHONPATH", None)
    program = [sys.executable, "-m", __name__, *archives]
    ended = subprocess.run(program, env=environment, check=False, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_executors_without_flownet_say_so(bare_python: str) -> None:
    told = run(bare_python)
    assert f"the Python of the executors ({bare_python}) lacks flownet: No module named 'flownet'" in told
    assert "flownet.spark.pack" in told


@pytest.mark.parametrize("name", ["flownet.zip", "flownet.tar.gz"])
def test_executors_find_flownet_in_an_archive(bare_python: str, tmp_path: Path, name: str) -> None:
    from flownet import spark

    archive = spark.pack(tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert run(bare_python, f"{archive}#flownet-archive") == "[0, 1, 4, 9]\n"


def test_an_archive_has_the_extension_and_what_is_asked_for(tmp_path: Path) -> None:
    from flownet import spark

    with zipfile.ZipFile(spark.pack(tmp_path / "some.zip", include=["psutil"])) as archive:
        names = archive.namelist()
    assert len(names) == len(set(names))
    assert {"flownet/__init__.py", "cloudpickle/__init__.py", "psutil/__init__.py"} <= set(names)
    assert any(name.startswith("flownet/_flownet.") for name in names)
    with pytest.raises(ConfigError, match="no such distribution is installed"):
        spark.pack(tmp_path / "some.zip", include=["no-such-thing"])
    with pytest.raises(ConfigError, match=r"names end in .zip, .tar.gz or .tgz"):
        spark.pack(tmp_path / "flownet.rar")


def main(archives: list[str]) -> None:
    """Square numbers on executors, and print the result or the error."""
    from pyspark.sql import SparkSession

    from flownet import spark

    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
    settings["spark.archives"] = ",".join(archives)
    session = SparkSession.builder.master("local-cluster[1,1,1024]").config(map=settings).getOrCreate()
    env = fn.Environment()
    squares = env.from_collection(range(4)).map(lambda number: number * number).collect()
    try:
        env.execute(on=spark.cluster(session, workers=1))
        print(list(squares))
    except fn.errors.LaunchError as error:
        print(f"LaunchError: {error}")
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
