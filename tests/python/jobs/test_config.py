"""Settings: how they are written, which place wins, and what is refused."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Any

import pytest

import flownet as fn
from flownet.api import environment
from flownet.errors import ConfigError
from flownet.internal import config


@pytest.mark.parametrize(
    ("written", "microseconds"),
    [
        ("10ms", 10_000),
        ("250us", 250),
        ("5s", 5_000_000),
        ("1.5 s", 1_500_000),
        ("2min", 120_000_000),
        ("2m", 120_000_000),
        ("1h", 3_600_000_000),
        (" 1d ", 86_400_000_000),
        (timedelta(milliseconds=7), 7000),
        (0, 0),
        ("0s", 0),
    ],
)
def test_durations_have_units(written: Any, microseconds: int) -> None:
    assert config.duration_us("timeout", written) == microseconds


@pytest.mark.parametrize(
    "written", ["", "10", "ms", "-1s", "1 year", 5, 0.5, True, None, timedelta(-1), b"1s", "0.1us"]
)
def test_what_is_no_duration_is_refused_with_its_name_and_value(written: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"timeout={written!r}")) as caught:
        config.duration_us("timeout", written)
    assert (caught.value.setting, caught.value.value) == ("timeout", written)


def test_a_bare_number_is_told_to_take_a_unit() -> None:
    with pytest.raises(ConfigError, match="write '5ms' or '5s'"):
        fn.Environment(buffer_timeout=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "size"),
    [("32KiB", 32 << 10), ("64 MiB", 64 << 20), ("1GiB", 1 << 30), ("1.5KiB", 1536), ("64MB", 64_000_000), (100, 100)],
)
def test_sizes_have_units_or_count_bytes(written: Any, size: int) -> None:
    assert config.size_bytes("memory", written) == size


@pytest.mark.parametrize("written", ["", "64", "MiB", "-1KiB", "1.0001KiB", 0, -5, 1.5, True, None, "64 mib"])
def test_what_is_no_size_is_refused(written: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"memory={written!r}")):
        config.size_bytes("memory", written)


@pytest.mark.parametrize(
    "settings",
    [
        {"parallelism": 0},
        {"max_parallelism": 0},
        {"max_parallelism": 32_769},
        {"codec": "json"},
        {"network_memory": "lots"},
        {"segment_size": 0},
        {"exclusive_buffers": -1},
        {"floating_buffers": 0},
        {"slots_per_worker": 0},
        {"heartbeat_timeout": 0},
        {"name": ""},
    ],
)
def test_a_value_out_of_range_is_refused_by_the_constructor(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=f"^{name}=") as caught:
        fn.Environment(**settings)
    assert caught.value.setting == name
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("workers", [-1, 1025, 1.0, "2", True])
def test_a_number_of_workers_out_of_range_is_refused(workers: Any) -> None:
    env = fn.Environment()
    env.from_collection([1]).print()
    with pytest.raises(ConfigError, match="^workers="):
        env.execute(workers)


def test_the_place_nearest_to_the_start_of_the_job_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def timeout(given: dict[str, object], overrides: dict[str, str]) -> object:
        return config.resolve(given, overrides)["buffer_timeout"]

    assert timeout({}, {}) == config.SETTINGS["buffer_timeout"].default == 100_000
    assert timeout({"buffer_timeout": "1ms"}, {}) == 1000
    monkeypatch.setenv("FLOWNET_BUFFER_TIMEOUT", "2ms")
    assert timeout({"buffer_timeout": "1ms"}, {}) == 2000
    assert timeout({"buffer_timeout": "1ms"}, {"buffer_timeout": "3ms"}) == 3000


def test_settings_in_text_are_read_by_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"buffer_timeout": "none", "segment_size": "65536", "exclusive_buffers": "0", "name": "7"}
    settings = config.resolve({}, written)
    keys = ("buffer_timeout", "segment_size", "exclusive_buffers", "name")
    assert [settings[key] for key in keys] == [None, 65536, 0, "7"]
    monkeypatch.setenv("FLOWNET_EXCLUSIVE_BUFFERS", "many")
    with pytest.raises(ConfigError, match="exclusive_buffers='many' must be a whole number"):
        fn.Environment()


def test_a_yes_or_no_is_true_or_false() -> None:
    for written, value in (("true", True), ("False", False)):
        assert config.resolve({}, {"object_reuse": written})["object_reuse"] is value
    for given in ("yes", 1, None):
        with pytest.raises(ConfigError, match=f"object_reuse={given!r} must be True or False"):
            fn.Environment(object_reuse=given)  # type: ignore[arg-type]


def test_a_setting_that_does_not_exist_lists_those_that_do() -> None:
    with pytest.raises(
        ConfigError, match="unknown setting 'bufer_timeout'; there are: allow_non_replayable, allow_non_"
    ):
        config.parse_assignment("bufer_timeout=1ms")


def test_an_assignment_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="write NAME=VALUE"):
        config.parse_assignment("buffer_timeout")


def test_every_setting_is_an_argument_of_the_environment_or_of_enable_checkpointing() -> None:
    arguments = set(fn.Environment.__init__.__annotations__) - {"return"}
    checkpoints = set(fn.Environment.enable_checkpointing.__annotations__) - {"return"}
    assert checkpoints == set(environment._CHECKPOINTING)
    assert set(config.SETTINGS) - {"workers"} == arguments | set(environment._CHECKPOINTING.values())


def test_settings_that_do_not_go_together_are_refused_by_the_constructor_in_words_of_the_user() -> None:
    with pytest.raises(ConfigError, match="network_memory is 4096, allowed are 32768 to") as caught:
        fn.Environment(network_memory="4KiB")
    assert caught.value.setting == "network_memory"
    with pytest.raises(ConfigError, match="heartbeat_timeout is 1s, it must be at least twice heartbeat_interval"):
        fn.Environment(heartbeat_timeout="1s")


def test_a_time_longer_than_a_week_is_a_mistake_in_the_unit() -> None:
    with pytest.raises(ConfigError, match="launch_timeout='8d' must be at most 168 h"):
        fn.Environment(launch_timeout="8d")


def test_the_documented_defaults_are_those_of_the_engine() -> None:
    doc = inspect.getdoc(fn.Environment) or ""
    documented = dict(re.findall(r"^(\w+)\n(?:    .*\n)*?    .*Default: ([^\n]*)\.", doc, re.MULTILINE))
    for name in ("network_memory", "segment_size", "exclusive_buffers", "floating_buffers", "max_record_size"):
        setting = config.SETTINGS[name]
        written = documented[name].split(".")[0]
        assert setting.check_text(written) == setting.default, name


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0, "0 us"), (7, "7 us"), (10_000, "10 ms"), (5_000_000, "5 s"), (90_000_000, "90 s"), (3_600_000_000, "1 h")],
)
def test_durations_are_shown_with_their_largest_whole_unit(microseconds: int, text: str) -> None:
    assert config.format_duration(microseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (64 << 20, "64 MiB"),
        (123_456_789, "118 MiB"),
        (5 << 40, "5120 GiB"),
    ],
)
def test_sizes_are_shown_with_three_digits(size: int, text: str) -> None:
    assert config.format_size(size) == text


def test_memory_for_less_than_a_buffer_is_refused_by_the_name_it_was_given_by() -> None:
    with pytest.raises(ConfigError, match="network_memory") as caught:
        fn.Environment(network_memory="4KiB")
    assert caught.value.setting == "network_memory"
    fn.Environment(network_memory="4KiB", segment_size="1KiB")
