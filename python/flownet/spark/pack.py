"""Packs flownet into an archive for executors that do not have it."""

from __future__ import annotations

import importlib.metadata
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..errors import ConfigError


def pack(path: str | os.PathLike[str], *, include: Iterable[str] = ()) -> str:
    """Write flownet into an archive that Spark unpacks on its executors.

    Parameters
    ----------
    path
        The archive: its name ends in ``.zip``, ``.tar.gz`` or ``.tgz``. A file of that name is replaced.
    include
        Names of installed distributions to pack as well, such as those that your functions import. ``"cloudpickle"``
        is always packed. What PySpark needs on executors anyway, such as pyarrow, is not. Default: none.

    Returns
    -------
    str
        The path, as text, for the setting ``spark.archives``.

    Raises
    ------
    ConfigError
        The name has another ending, or a distribution is not installed.

    Notes
    -----
    Workers look for flownet in every archive of the application, if their Python has none. The executors need the same
    operating system and processor as this process, and the same minor version of Python.

    Examples
    --------
    >>> archive = flownet.spark.pack("flownet.zip")  # doctest: +SKIP
    >>> builder = SparkSession.builder.config("spark.archives", f"{archive}#flownet-archive")  # doctest: +SKIP
    >>> spark = builder.getOrCreate()  # doctest: +SKIP
    """
    if isinstance(include, str):
        raise ConfigError(f"include={include!r}: give a list of names", setting="include", value=include)
    target = Path(path)
    writer = _writer_of(target.name)
    files = [*_own_files(), *(file for name in dict.fromkeys(["cloudpickle", *include]) for file in _files_of(name))]
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        writer(partial, files)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return str(target)


def _writer_of(name: str) -> Callable[[Path, list[tuple[Path, str]]], None]:
    if name.endswith(".zip"):
        return _write_zip
    if name.endswith((".tar.gz", ".tgz")):
        return _write_tar
    text = f"path={name!r}: Spark unpacks archives whose names end in .zip, .tar.gz or .tgz"
    raise ConfigError(text, setting="path", value=name)


def _write_zip(path: Path, files: list[tuple[Path, str]]) -> None:
    # Some packages have files dated 1970, which zip files cannot say.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for file, name in files:
            archive.write(file, name)


def _write_tar(path: Path, files: list[tuple[Path, str]]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for file, name in files:
            archive.add(file, name)


def _own_files() -> Iterator[tuple[Path, str]]:
    package = Path(__file__).parents[1]
    for file in sorted(package.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, str(Path("flownet") / file.relative_to(package))


def _files_of(name: str) -> Iterator[tuple[Path, str]]:
    try:
        files = importlib.metadata.files(name)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"include={name!r}: no such distribution is installed", setting="include", value=name
        ) from None
    # Scripts and headers lie outside of the folder of packages.
    inside = [file for file in files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    if not any(file.suffix in (".py", ".so") for file in inside):
        text = f"include={name!r}: it is installed in editable mode, or lists no files: install it as a wheel"
        raise ConfigError(text, setting="include", value=name)
    for file in inside:
        yield Path(str(file.locate())), str(file)
