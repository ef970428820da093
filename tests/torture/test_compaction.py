"""As tests/storage/test_compaction.py, many times over."""

from tests.storage.test_compaction import crash_in_cleanings, play_cases

CASES = 10_000


def test_ten_thousand_cases_hold_the_newest_of_each_key() -> None:
    installed, removed, crashes = play_cases(CASES)
    print(f"{CASES} cases, {installed} segments put in place, {removed} records removed, {crashes} crashes")
    assert (installed > CASES, removed > CASES, crashes > CASES // 2) == (True, True, True)


def test_power_cuts_at_each_operation_of_a_cleaning() -> None:
    crashes = crash_in_cleanings(power_cut=True, seed_count=100)
    print(f"{crashes} power cuts")
    assert crashes > 10_000
