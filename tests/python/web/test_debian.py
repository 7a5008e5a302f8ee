"""Downloads of Debian's packages on machines that have some of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .debian import DOWNLOAD, apt, family

BROWSER = "chromium-headless-shell"
SIMULATED = ("-o", "Debug::NoLocking=1", "--print-uris")


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")
def test_siblings_of_a_program_are_downloaded_although_they_are_installed(tmp_path: Path) -> None:
    common = archives(*SIMULATED, *DOWNLOAD, "chromium-common")
    if not common:
        pytest.skip("apt has no package lists")
    status = tmp_path / "status"
    stanzas = [Path("/var/lib/dpkg/status").read_text(), *map(installed, sorted(common))]
    status.write_text("\n\n".join(stanza.strip("\n") for stanza in stanzas) + "\n\n")
    with_common = (*SIMULATED, "-o", f"Dir::State::status={status}")
    asked_for_alone = [argument for argument in DOWNLOAD if argument != "--reinstall"]
    assert "chromium-common" not in archives(*with_common, *asked_for_alone, BROWSER)
    assert {BROWSER, "chromium-common"} <= archives(*with_common, *DOWNLOAD, *family(BROWSER))


def archives(*arguments: str) -> set[str]:
    """Name the packages that apt would download."""
    return set(re.findall(r"^\S+ ([^_\s]+)_\S+\.deb ", apt("get", *arguments), re.MULTILINE))


def installed(package: str) -> str:
    """Write what dpkg would list of an installed package."""
    shown = apt("cache", "show", "--no-all-versions", package).split("\n\n")[0]
    of_archive = re.compile(r"^(Filename|Size|SHA256|MD5sum|Description-md5):.*\n", re.MULTILINE)
    return of_archive.sub("", shown + "\n") + "Status: install ok installed"
