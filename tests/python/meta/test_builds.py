"""What CI compiles once it does not compile again: one crate with other features is another crate to cargo."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()
EXTENSION = ("-p", "flownet-python")
FUZZER = ("--features", "flownet-fuzz/fuzzer,flownet-fuzz/interpreter")


def crates(*selected: str, edges: str) -> set[str]:
    """List the crates that a command builds for these packages, each with the features that it has then."""
    command = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p} {f}", "--edges", edges, *selected]
    tree = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return {line.removesuffix(" (*)").strip() for line in tree.splitlines() if line}


def names(crates: set[str]) -> set[str]:
    return {crate.split()[0] for crate in crates}


def packages(variable: str) -> list[str]:
    """What a command of the Makefile selects."""
    found = re.search(rf"^{variable} := (.+)$", MAKEFILE, re.MULTILINE)
    assert found is not None
    return [word for pair in re.findall(r"(-p) (\S+)", found[1]) for word in pair]


def ours() -> set[str]:
    manifests = ROOT.glob("*/*/Cargo.toml")
    return {tomllib.loads(manifest.read_text())["package"]["name"] for manifest in manifests}


def profiles(path: str) -> dict[str, dict[str, object]]:
    profiles: dict[str, dict[str, object]] = tomllib.loads((ROOT / path).read_text())["profile"]["release"]["package"]
    return profiles


def test_benches_build_no_crate_of_the_extension_again() -> None:
    extension = crates(*EXTENSION, edges="normal,build")
    assert len(extension) > 100
    assert extension - crates(*packages("BENCHES"), edges="normal,build,dev") == set()


def test_tests_build_no_crate_of_others_again_but_for_clocks_that_stop_and_hosts_of_their_own() -> None:
    extension = crates(*EXTENSION, edges="normal,build")
    tested = crates("--workspace", "--exclude", "flownet-sim", edges="normal,build,dev")
    assert names(extension - tested) == {"tokio", "nix"}
    assert names({crate for crate in tested if re.search(r"\b(test-util|sched)\b", crate)}) == {"tokio", "nix"}


def test_the_fuzzer_builds_no_crate_of_others_but_its_own() -> None:
    extension = crates(*EXTENSION, edges="normal,build")
    fuzzed = crates(*packages("FUZZED"), *FUZZER, edges="normal,build")
    assert names(fuzzed - extension) == {"arbitrary", "flownet-fuzz", "libfuzzer-sys"}


def test_all_crates_of_ours_are_tested_with_every_assertion() -> None:
    checked = profiles("tests/checked.toml")
    assert set(checked) == ours()
    for profile in checked.values():
        assert profile == checked["flownet-core"]
        assert profile["opt-level"] == 0
        assert profile["debug-assertions"]
        assert profile["overflow-checks"]


def test_all_crates_of_ours_that_are_fuzzed_assert() -> None:
    fuzzed = names(crates("-p", "flownet-fuzz", *FUZZER, edges="normal")) & ours()
    found = profiles("tests/fuzz/fuzzed.toml")
    assert set(found) == fuzzed
    assert all(profile["debug-assertions"] and profile["overflow-checks"] for profile in found.values())


def test_modules_of_python_are_compiled_once_for_all_processes_of_tests() -> None:
    assert re.search(r"^export PYTHONDONTWRITEBYTECODE :=$", MAKEFILE, re.MULTILINE)


def test_tests_lint_and_docs_take_our_crates_in_one_way() -> None:
    commands = re.findall(r"^.*\$\(CARGO\) (?:test|clippy|doc) .*$", MAKEFILE, re.MULTILINE)
    # The model checkers have profiles of their own, and what object stores need is compiled for nothing else.
    others = [command for command in commands if "$(CHECKED)" not in command]
    assert len(commands) - len(others) >= 5
    assert all(any(name in command for name in ("loom", "$(SIM)", "cloud")) for command in others), others
