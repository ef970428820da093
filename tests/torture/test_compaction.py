"""As tests/storage/test_compaction.py, many times over."""

from hypothesis import given, settings
from tests.storage.compaction_model import Case, cases, play
from tests.storage.test_compaction import crash_in_cleanings

CASES = 10_000
_cleanings: list[tuple[int, int]] = []


@settings(max_examples=CASES, report_multiple_bugs=False)
@given(cases)
def test_ten_thousand_cases_hold_the_newest_of_each_key(case: Case) -> None:
    model = play(case)
    _cleanings.append((model.installed, model.crashes))


def test_the_cases_had_content() -> None:
    installed, crashes = (sum(counts) for counts in zip(*_cleanings))
    assert installed > CASES
    assert crashes > CASES // 2
    print(f"{len(_cleanings)} cases, {installed} segments put in place, {crashes} crashes")


def test_power_cuts_at_each_operation_of_a_cleaning() -> None:
    crashes = crash_in_cleanings(power_cut=True, seed_count=100)
    print(f"{crashes} power cuts")
    assert crashes > 10_000
