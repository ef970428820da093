"""All that ``tests/coordination`` says of a session is true of one by TLS, too."""

from __future__ import annotations

import pytest
from tests.coordination.places import Case, run_on_zookeeper
from tests.coordination.test_conformance import CASES
from tests.coordination.test_tls import Secure, secure  # noqa: F401 - a fixture


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_conformance_by_tls(case: Case, secure: Secure) -> None:  # noqa: F811 - the fixture
    run_on_zookeeper(secure.server, case.__name__, case, port=secure.port, tls=secure.tls())
