"""Every named bad input leaves the broker alive, an honest client served, and memory bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.principals import STANDARD
from tests.hostile.case import Case
from tests.hostile.cases import all_cases, cases_of_acls, cases_of_transactions
from tests.hostile.judge import Judge, judged_broker

CASES = all_cases()
OF_TRANSACTIONS = cases_of_transactions()
OF_ACLS = cases_of_acls()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judged_broker(tmp_path_factory.mktemp("hostile")) as judge:
        yield judge


@pytest.fixture(scope="module")
def judge_of_transactions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judged_broker(tmp_path_factory.mktemp("hostile-transactions")) as judge:
        yield judge


@pytest.fixture(scope="module")
def judge_of_acls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judged_broker(tmp_path_factory.mktemp("hostile-acls"), authorizer_class_name=STANDARD, super_users="User:ANONYMOUS") as judge:
        yield judge


def test_hundreds_of_bad_inputs_have_unique_names() -> None:
    cases = [*CASES, *OF_TRANSACTIONS, *OF_ACLS]
    assert len({case.name for case in cases}) == len(cases) > 500


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input(judge: Judge, case: Case) -> None:
    judge.try_case(case)


@pytest.mark.parametrize("case", OF_TRANSACTIONS, ids=[case.name for case in OF_TRANSACTIONS])
def test_bad_input_of_transactions(judge_of_transactions: Judge, case: Case) -> None:
    judge_of_transactions.try_case(case)


@pytest.mark.parametrize("case", OF_ACLS, ids=[case.name for case in OF_ACLS])
def test_bad_input_of_acls(judge_of_acls: Judge, case: Case) -> None:
    judge_of_acls.try_case(case)
