"""The types of plans in Python are those that Rust reads."""

from __future__ import annotations

from . import plan_types


def test_the_types_in_python_are_those_of_rust() -> None:
    written = plan_types.formatted(plan_types.render(plan_types.read()))
    assert plan_types.WRITTEN.read_text() == written, "run python tests/python/meta/plan_types.py"


def test_a_change_in_rust_changes_the_types() -> None:
    source = (plan_types.RUNTIME / "spec" / "window.rs").read_text()
    assert [member.name for member in plan_types.definition(source, "TriggerSpec").members] == ["when", "purges"]
    changed = source.replace("    pub purges: bool,\n", "    pub purges: bool,\n    pub quiet: Option<u32>,\n")
    changed = changed.replace("    Never,\n", "    Never,\n    Twice(u64),\n")
    trigger, when = (plan_types.definition(changed, name) for name in ("TriggerSpec", "TriggerWhen"))
    text = plan_types.render([when, trigger])
    assert "    quiet: int | None\n" in text
    assert "    twice: int\n" in text
    assert "purges: NotRequired[bool]" in text
