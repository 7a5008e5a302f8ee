"""Parameters of workloads and settings of scenarios: what they take, and how they are written."""

from __future__ import annotations

import re

import pytest

from flownet.errors import ConfigError
from flownet.experiments import Parameter
from flownet.internal.parameter import assigned
from flownet.lab.head_of_line import HeadOfLine
from flownet.lab.settings import parameters, with_settings, with_values, written


@pytest.mark.parametrize(
    ("parameter", "given", "value", "text"),
    [
        (Parameter("rate", ""), "2MB/s", 2_000_000, "2 MB/s"),
        (Parameter("rate", ""), "20 kB / s", 20_000, "20 kB/s"),
        (Parameter("size", ""), "64MB", 64_000_000, "64 MB"),
        (Parameter("size", ""), "64KiB", 65_536, "64 KiB"),
        (Parameter("size", ""), 1_234_567, 1_234_567, "1.234567 MB"),
        (Parameter("duration", ""), "1500us", 1500, "1500 us"),
        (Parameter("count", "", low=2, high=5), 2, 2, "2"),
        (Parameter("number", "", low=0), 0.5, 0.5, "0.5"),
        (Parameter("size", "", may_be_none=True), "none", None, "none"),
    ],
)
def test_a_value_is_read_in_base_units_and_written_exactly(
    parameter: Parameter, given: object, value: object, text: str
) -> None:
    assert parameter.read("name", given) == value
    assert parameter.write(parameter.read("name", given)) == text
    if not isinstance(given, int | float):
        assert parameter.read("name", text) == value, "what was written can be read"


@pytest.mark.parametrize(
    ("parameter", "given", "text"),
    [
        (Parameter("rate", ""), 3, "name=3 must be a speed such as '2MB/s'"),
        (Parameter("rate", "", high=20e6), "1GB/s", "name='1GB/s' must be at most 20 MB/s"),
        (Parameter("count", "", low=2, high=5), 6, "name=6 must be at least 2 and at most 5"),
        (Parameter("count", "", low=2, high=5), 2.5, "name=2.5 must be a whole number, at least 2 and at most 5"),
        (Parameter("number", "", high=1), "much", "name='much' must be a number, at most 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_is_allowed(parameter: Parameter, given: object, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        parameter.read("name", given)


def test_a_setting_of_a_scenario_is_a_parameter_whose_field_has_a_unit_of_its_own() -> None:
    scenario = with_settings(HeadOfLine(), ["alone=1500ms", "crawl=10kB/s"])
    assert (scenario.alone, scenario.crawl, scenario.both) == (1.5, 10_000, 3.0)
    assert dict(written(scenario))["alone=1500 ms"] == parameters(HeadOfLine)["alone"].doc
    assert "crawl=10 kB/s" in dict(written(scenario))
    values = {name: parameter.read(name, parameter.default) for name, parameter in parameters(HeadOfLine).items()}
    assert with_values(scenario, values) == HeadOfLine()


def test_a_command_line_is_read_as_toml_and_else_as_text() -> None:
    assert assigned("records=1_000", "") == ("records", 1000)
    assert assigned("buffer-timeout = 10ms", "") == ("buffer_timeout", "10ms")
    assert assigned("tls=true", "") == ("tls", True)
    with pytest.raises(ConfigError, match="write NAME=VALUE, for example a=1"):
        assigned("records", "a=1")
