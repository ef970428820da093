"""100,000 states that power cuts leave of recorded runs, each recovered and checked; recoveries are crashed as well."""

import pytest
from tests.storage.crash_states import explore
from tests.storage.recorded_cleanings import transacting_and_cleaning
from tests.storage.recorded_runs import RUNS

STATES = 100_000


@pytest.mark.parametrize("name", RUNS)
def test_no_state_of_a_run_loses_what_was_synced(name: str) -> None:
    count = explore(RUNS[name](), seed=2, states=-(-STATES // len(RUNS)))
    print(f"{name}: {count} states")


def test_no_state_of_cleaned_transactions_gives_readers_what_was_not_committed() -> None:
    print(f"cleaned transactions: {explore(transacting_and_cleaning(), seed=2, states=-(-STATES // len(RUNS)))} states")
