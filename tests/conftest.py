"""What all tests share: which directories are asked for by name, where Spark's tests run, how hypothesis searches."""

import contextlib
import dataclasses
import functools
import gc
import importlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
from tests.foreign_clients.broker_process import lasting_port
from xdist.scheduler import LoadScopeScheduling

from ottla.runtime.io_policy import PATHS, VARIABLE, chosen
from ottla.runtime.zookeeper_server import ZooKeeperServer

# These need more than Python and the package index, or much time: they run only when named (make interop, kernel, torture).
ONLY_WHEN_NAMED = frozenset({"interop", "kernel", "torture"})
TESTS = Path(__file__).parent
SHARED = re.compile(r'scope="module"|^@(functools\.)?cache$', re.MULTILINE)
OWN_JVMS = frozenset(f"tests/spark/test_{name}.py" for name in ("declarative", "demo", "kills", "pipeline_command"))

# Most of a test's JVM is its start and its first batches: without the second compiler it needs two thirds of the processor.
for _variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A test run decides nothing by luck or by the clock; the long runs (--hypothesis-profile=torture) are where new examples are sought.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("torture", deadline=None, max_examples=5_000, print_blob=True)
hypothesis.settings.load_profile("default")

# A shell's background job, and some CI runners, begin with SIGINT ignored, which every process started from here would inherit;
# the tests send it as a user's Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# nohup begins with SIGHUP ignored, which the processes would inherit as well; the tests send it as a terminal that closes.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(autouse=True)
def _default_logging() -> Iterator[None]:
    """What one test silences, another one may want to hear."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def default_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes go to and from files as by default, whatever ``make test-paths`` forces: for tests of what is chosen by default."""
    monkeypatch.delenv(VARIABLE, raising=False)
    for name, value in dataclasses.asdict(chosen("")).items():
        monkeypatch.setattr(PATHS, name, value)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """An Apache ZooKeeper of its own, one for all tests of a worker: each of them has its own chroot."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), lasting_port())
    server.start()
    yield server
    server.kill()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.parent != TESTS or collection_path.name not in ONLY_WHEN_NAMED:
        return None
    is_named = any(Path(config.invocation_params.dir, argument.split("::")[0]).is_relative_to(collection_path) for argument in config.args)
    return None if is_named else True


def pytest_sessionstart() -> None:
    """What is collected stays to the end: nothing is gained by looking through it for garbage, now or later."""
    gc.disable()


def pytest_collection(session: pytest.Session) -> None:
    """Has each worker import another share of the modules first: on a fresh checkout every one of them would compile them all."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    modules = sorted(path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in ONLY_WHEN_NAMED)
    for path in modules[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with contextlib.suppress(Exception):  # it is raised again where the module is collected
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests come first: they are the longest."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@functools.cache
def shares_fixtures(module: str) -> bool:
    """Whether the tests of a module share what they start or make, such as a broker: each worker that has one of them makes it, too."""
    return SHARED.search((TESTS.parent / module).read_text()) is not None


class SharedOnOneWorker(LoadScopeScheduling):  # type: ignore[misc]
    """Spark's tests share a worker and its JVM; those whose commands have a JVM each share another: two run at a time.

    The tests of a module that share fixtures have one worker: a broker of theirs is started once. So have the cases of one test.
    What has most cases comes first; so what is left to the end is short. (``--dist loadgroup`` does not group under pytest 9.2:
    pytest-xdist 3.8 puts a group's name where that no longer looks.)
    """

    def _split_scope(self, nodeid: str) -> str:
        module, _, _ = nodeid.partition("::")
        if module.startswith("tests/spark/"):
            return "processes with Spark" if module in OWN_JVMS else "Spark"
        return module if shares_fixtures(module) else nodeid.partition("[")[0]

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forgets what is done, which pytest-xdist counts again after each test: 15,000 times 5,000."""
        super().mark_test_complete(node, item_index, duration)
        work = self.assigned_work[node]
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(work[scope].values()):
            del work[scope]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return SharedOnOneWorker(config, log)
