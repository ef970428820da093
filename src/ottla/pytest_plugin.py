"""Fixtures for pytest, which finds them wherever ottla is installed.

    ottla_broker          a broker in a thread, one for all tests of a worker
    ottla_secure_broker   the same with SASL_SSL, SCRAM and an authorizer
    ottla_thread_cluster  three nodes in one thread, for all tests of a worker
    ottla_cluster         three nodes in processes, for one test: they can be killed
    ottla_topic           a new topic, in the cluster that the test uses, else in the broker
    history               what the watched clients of the test did; judged at its end
    ottla_properties      broker keys of all these; a project's own fixture of that name changes them

What nodes have logged is shown of tests that fail, and of no others. The rest of ottla is imported by the first fixture that is used.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:  # a project whose tests use none of this does not wait for the rest of ottla
    from ottla.testing import History, ProcessNodes, SecureBroker, Served, ThreadNodes

SERVED: Final = ("ottla_cluster", "ottla_thread_cluster", "ottla_secure_broker", "ottla_broker")
"""Where a topic is, and a history is read: the first of these that the test uses. A test that uses several has neither of them."""
LINES_MAX: Final = 200
_position = pytest.StashKey[int]()
_positions = pytest.StashKey["Mapping[ProcessNodes, Mapping[int, int]]"]()
_shared: Final[list[ThreadNodes]] = []


@pytest.fixture(scope="session")
def ottla_properties() -> dict[str, str]:
    """Provides broker keys: define a fixture of this name, with ``scope="session"``, to have others."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker(ottla_properties: dict[str, str]) -> Iterator[ThreadNodes]:
    """Provides one broker in a thread for all tests; its ``bootstrap`` is for clients."""
    from ottla.testing import broker

    with broker(**ottla_properties) as served, _shared_by_tests(served):
        yield served


@pytest.fixture(scope="session")
def ottla_secure_broker(ottla_properties: dict[str, str]) -> Iterator[SecureBroker]:
    """Provides one broker with SASL_SSL, SCRAM and an authorizer for all tests; it has settings for each client, and makes users."""
    from ottla.testing import secure_broker

    with secure_broker(**ottla_properties) as served, _shared_by_tests(served):
        yield served


@pytest.fixture(scope="session")
def ottla_thread_cluster(ottla_properties: dict[str, str]) -> Iterator[ThreadNodes]:
    """Provides three nodes in one thread, for all tests; nodes are stopped and started again by their ids, 1 to 3."""
    from ottla.testing import thread_cluster

    with thread_cluster(3, **ottla_properties) as served, _shared_by_tests(served):
        yield served


@pytest.fixture
def ottla_cluster(ottla_properties: dict[str, str]) -> Iterator[ProcessNodes]:
    """Provides three nodes in processes, for this test; by their ids, 1 to 3, they are killed, paused, resumed and restarted."""
    from ottla.testing import cluster

    with cluster(3, **ottla_properties) as served:
        yield served


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest) -> str:
    """Provides the name of a new topic with one partition, in the broker or cluster that the test uses; else in ``ottla_broker``.

    A test of several brokers or clusters fails: it would not say where.
    """
    _check_single(request, "use {}.topic()")
    return _served(request).topic(request.node.name)


@pytest.fixture
def history(request: pytest.FixtureRequest) -> Iterator[History]:
    """Provides the history of the test's watched clients; the test fails when a record is lost or doubled.

    A test of several brokers or clusters fails: what is read at the end would not be all that was sent.
    """
    from ottla.testing import History

    _check_single(request, "for each of them, make an ottla.testing.History({0}.bootstrap, **{0}.client_settings), and call its check()")
    served = _served(request)
    recorded = History(served.bootstrap, **served.client_settings)
    yield recorded
    recorded.check()
    recorded.warn_if_empty(str(request.node.path), (request.node.location[1] or 0) + 1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Notes where the log stands: later lines belong to this test."""
    journal = sys.modules.get("ottla.testing.journal")
    item.stash[_position] = journal.JOURNAL.position if journal is not None else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Notes it again where the test starts: an ordinary start of its nodes explains no failure of it."""
    pytest_runtest_setup(item)
    processes = sys.modules.get("ottla.testing.process_nodes")
    item.stash[_positions] = {} if processes is None else {nodes: nodes.log_positions() for nodes in processes.running}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Clears the faults before fixtures are torn down, and starts the shared nodes that the test stopped: the next test has them all.

    Of faults that never happened it warns.
    """
    threads = sys.modules.get("ottla.testing.thread_nodes")
    faults = [] if threads is None else [fault for nodes in list(threads.running) for fault in nodes.faults.clear()]
    for nodes in _shared:
        nodes.start_stopped()
    for fault in faults:
        fault.warn_if_idle()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the nodes' logs to the report of a test that failed."""
    report = yield
    if report.failed:
        report.sections += _logs(item.stash.get(_position, 0), item.stash.get(_positions, {}))
    return report


def _logs(position: int, positions: Mapping[ProcessNodes, Mapping[int, int]]) -> Iterator[tuple[str, str]]:
    journal, processes = sys.modules.get("ottla.testing.journal"), sys.modules.get("ottla.testing.process_nodes")
    if journal is not None:
        lines = journal.JOURNAL.since(position).splitlines(keepends=True)
        if lines:
            yield "ottla in this process", "".join(lines[-LINES_MAX:])
    if processes is not None:
        for nodes in list(processes.running):
            lines = nodes.log_since(positions.get(nodes, {}))
            if lines:
                yield "ottla nodes", lines


@contextmanager
def _shared_by_tests(nodes: ThreadNodes) -> Iterator[None]:
    _shared.append(nodes)
    try:
        yield
    finally:
        _shared.remove(nodes)


def _check_single(request: pytest.FixtureRequest, way_out: str) -> None:
    """Fails a test that uses several brokers or clusters; ``way_out`` has a place for the name of one."""
    used = [name for name in SERVED if name in request.fixturenames]
    if len(used) > 1:
        uses = " and ".join(used)
        text = f"{request.fixturename} is of one broker or cluster, and this test uses {uses}: {way_out.format(used[-1])}"
        pytest.fail(text, pytrace=False)


def _served(request: pytest.FixtureRequest) -> Served:
    name = next((name for name in SERVED if name in request.fixturenames), "ottla_broker")
    served: Served = request.getfixturevalue(name)
    return served
