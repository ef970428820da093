"""Compaction: what stays of a log, in what form, and through which crashes."""

from __future__ import annotations

from hypothesis import given, settings
from tests.storage.compaction_model import Case, Model, cases, play

_totals = Model()


@settings(max_examples=500, report_multiple_bugs=False)
@given(cases)
def test_a_compacted_log_holds_the_newest_of_each_key_through_any_crash(case: Case) -> None:
    model = play(case)
    for name in ("cleaned", "installed", "crashes", "removed", "written"):
        setattr(_totals, name, getattr(_totals, name) + getattr(model, name))


def test_the_cases_had_content() -> None:
    """Of the test before this one: without cleanings and crashes it would show nothing."""
    assert _totals.crashes > 100
    assert _totals.installed > 200
    assert _totals.removed > 500
