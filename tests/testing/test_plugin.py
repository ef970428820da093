"""The fixtures, as a project's tests use them: in a pytest of its own, with and without xdist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
USES_ALL = """
import pytest
from ottla.sync import Consumer, Producer, TopicPartition

@pytest.mark.parametrize("number", range(4))
def test_send(ottla_broker, ottla_topic, history, number):
    with history.watch(Producer(ottla_broker.bootstrap)) as producer:
        assert producer.send_and_wait(ottla_topic, b"x").offset == 0
    assert ottla_topic.startswith(f"test_send-{number}-")

def test_cluster(ottla_thread_cluster, ottla_topic, history):
    assert ottla_topic in history.bootstrap or ottla_thread_cluster.leader_of(ottla_topic) in (1, 2, 3)
    with history.watch(Producer(ottla_thread_cluster.bootstrap)) as producer:
        producer.send_and_wait(ottla_topic, b"x")
"""
LEAVES_A_FAULT = """
from ottla.sync import Producer

def test_one(ottla_broker):
    ottla_broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)

def test_two(ottla_broker, ottla_topic):
    with Producer(ottla_broker.bootstrap) as producer:
        producer.send_and_wait(ottla_topic, b"x")
"""
SHOWS_NOTHING = """
from ottla.sync import Producer
from ottla.testing import broker

def test_history(ottla_broker, ottla_topic, history):
    with Producer(ottla_broker.bootstrap) as producer:
        producer.send_and_wait(ottla_topic, b"x")

def test_block_of_a_fault(ottla_broker):
    with ottla_broker.faults.late("Fetch", 500):
        pass

def test_block_of_nodes():
    with broker() as served:
        served.faults.lost("EndTxn")
"""
TWO_BROKERS = """
import pytest

from ottla.sync import Producer
from ottla.testing import History

def test_two(ottla_broker, ottla_thread_cluster, ottla_topic):
    pass

def test_two_topics(ottla_broker, ottla_thread_cluster):
    assert {ottla_broker.topic(), ottla_thread_cluster.topic()}


def test_of_one_history(ottla_thread_cluster, ottla_broker, history):
    pass


def test_of_a_history_each(ottla_thread_cluster, ottla_broker):
    histories = []
    for served in (ottla_thread_cluster, ottla_broker):
        recorded = History(served.bootstrap, **served.client_settings)
        topic = served.topic("orders")
        with recorded.watch(Producer(served.bootstrap)) as producer:
            producer.send(topic, b"one").result(10)
        histories.append((recorded, topic))
    for recorded, topic in histories:
        recorded.check()
    recorded.sent("me", topic, "lost", partition=0, offset=7)
    with pytest.raises(AssertionError, match="lost"):
        recorded.check()
"""
STOPS_NODES = """
from ottla.sync import Producer

def test_one(ottla_broker, ottla_thread_cluster):
    ottla_broker.stop(1)
    ottla_thread_cluster.stop(1)
    ottla_thread_cluster.stop(3)
    assert not ottla_broker.is_running(1)

def test_two(ottla_broker, ottla_thread_cluster):
    for nodes in (ottla_broker, ottla_thread_cluster):
        assert all(nodes.is_running(node_id) for node_id in nodes.node_ids)
        with Producer(nodes.bootstrap) as producer:
            producer.send_and_wait(nodes.topic(), b"x")
"""
FAILS = """
from ottla.sync import Producer

def test_bad(ottla_broker, ottla_topic, history):
    history.sending("me", ottla_topic, "lost")
    history.sent("me", ottla_topic, "lost", partition=0, offset=0)

def test_wrong(ottla_cluster):
    ottla_cluster.restart(2)
    assert False

def test_thread(ottla_broker):
    ottla_broker.topic("made")
    assert False
"""
PROPERTIES = """
import pytest
from ottla.sync import Admin, Broker

@pytest.fixture(scope="session")
def ottla_properties():
    return {"num.partitions": "5"}

def test_it(ottla_broker, ottla_topic):
    with Admin(ottla_broker.bootstrap) as admin:
        configs = admin.describe_configs(Broker(1))
    assert configs["num.partitions"].value == "5"
"""
TOPIC_ALONE = """
import pytest
from ottla.sync import Admin

def test_alone(ottla_topic, request):
    with Admin(request.getfixturevalue("ottla_broker").bootstrap) as admin:
        assert ottla_topic in admin.list_topics()

@pytest.fixture
def nodes(ottla_thread_cluster):
    return ottla_thread_cluster

def test_of_its_fixture(ottla_topic, nodes):
    with Admin(nodes.bootstrap) as admin:
        assert ottla_topic in admin.list_topics()
"""


def run(directory: Path, source: str, *options: str) -> tuple[int, str]:
    """Exit code and output of pytest over one file."""
    (directory / "test_project.py").write_text(source)
    (directory / "pytest.ini").write_text("[pytest]\n")
    plugins = ["-p", "no:ottla", "-p", "ottla.pytest_plugin", "-p", "no:cacheprovider"]  # installed in place it would be there twice
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *plugins, *options, "test_project.py"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("options", [("-s", "-q"), ("-n", "2", "-q")])
@pytest.mark.slow
def test_tests_pass_and_nothing_is_printed(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, output = run(tmp_path, USES_ALL, *options)
    assert code == 0, output
    said = [line for line in output.splitlines() if line and not line.startswith(("bringing up nodes", "....."))]
    assert re.fullmatch(r"5 passed in .*", "\n".join(said)), output


@pytest.mark.slow
def test_no_test_meets_the_faults_of_another_one(tmp_path: Path) -> None:
    code, output = run(tmp_path, LEAVES_A_FAULT)
    assert code == 0
    assert re.search(r"test_project.py:5: UserWarning: error Produce happened 0 times, so the test has shown nothing about it", output)


@pytest.mark.slow
def test_a_history_of_no_client_and_a_fault_that_never_happened_are_warned_of(tmp_path: Path) -> None:
    code, output = run(tmp_path, SHOWS_NOTHING)
    assert code == 0, output
    assert "UserWarning: the history has judged nothing: no client was watched, as in history.watch(Producer(...))" in output
    for fault in ("late Fetch", "lost EndTxn"):
        assert f"UserWarning: {fault} happened 0 times, so the test has shown nothing about it; clients have sent since" in output
    lines = dict(enumerate(SHOWS_NOTHING.splitlines(), 1))
    warned = [lines[int(number)].strip() for number in re.findall(r"test_project.py:(\d+): UserWarning", output)]
    assert sorted(warned) == [
        "def test_history(ottla_broker, ottla_topic, history):",
        'served.faults.lost("EndTxn")',
        'with ottla_broker.faults.late("Fetch", 500):',
    ]


@pytest.mark.slow
def test_a_topic_and_a_history_of_two_brokers_are_refused_with_a_way_out_that_works(tmp_path: Path) -> None:
    code, output = run(tmp_path, TWO_BROKERS, "-q")
    assert code == 1
    assert "this test uses ottla_thread_cluster and ottla_broker: use ottla_broker.topic()" in output
    assert "this test uses ottla_thread_cluster and ottla_broker: for each of them, make" in output
    assert "an ottla.testing.History(ottla_broker.bootstrap, **ottla_broker.client_settings), and call its check()" in output
    assert "2 passed, 2 errors" in output


@pytest.mark.slow
def test_nodes_that_a_test_stopped_serve_the_next_one(tmp_path: Path) -> None:
    code, output = run(tmp_path, STOPS_NODES)
    assert code == 0, output


@pytest.mark.slow
def test_a_failed_test_shows_what_nodes_have_logged_and_what_was_lost(tmp_path: Path) -> None:
    code, output = run(tmp_path, FAILS)
    assert code == 1
    assert re.search(r"unseen in test_bad-\d+-0: 'lost' was acknowledged to me at offset 0", output)
    nodes = output.partition("ottla nodes")[2]
    assert "node 2" in nodes
    assert nodes.count("broker_started") == 1, "not the ordinary start of all three"
    assert re.search(r"test_thread(?s:.)*ottla in this process(?s:.)*topic_created|ottla in this process", output)


@pytest.mark.slow
def test_a_project_has_broker_keys_of_its_own(tmp_path: Path) -> None:
    code, output = run(tmp_path, PROPERTIES)
    assert code == 0, output


@pytest.mark.parametrize("word", ["ottla_cluster.kill", "ottla_secure_broker.user"])
@pytest.mark.slow
def test_the_test_of_the_documentation_passes(tmp_path: Path, word: str) -> None:
    source = next(text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if word in text)
    assert len(source.strip().splitlines()) <= 25
    code, output = run(tmp_path, source)
    assert code == 0, output


@pytest.mark.slow
def test_the_test_of_the_readme_passes(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [source] = [text for text in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "def test_" in text]
    code, output = run(tmp_path, source)
    assert code == 0, output


@pytest.mark.slow
def test_the_other_tests_of_the_documentation_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    chosen = [text for text in blocks if "asyncio.run" in text or "message_max_bytes" in text]
    assert len(chosen) == 2
    code, output = run(tmp_path, "\n".join(chosen))
    assert code == 0, output


@pytest.mark.slow
def test_the_coroutines_of_the_documentation_pass_with_the_plugin_of_anyio(tmp_path: Path) -> None:
    [source] = [text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "pytest.mark.anyio" in text]
    code, output = run(tmp_path, source)
    assert (code, "1 passed" in output) == (0, True), output


@pytest.mark.slow
def test_a_topic_without_a_broker_is_in_the_one_of_the_documentation(tmp_path: Path) -> None:
    """And one of a test whose own fixture uses a cluster is in that."""
    code, output = run(tmp_path, TOPIC_ALONE)
    assert (code, "2 passed" in output) == (0, True), output
    assert "without any, in `ottla_broker`" in PAGE


@pytest.mark.parametrize(("options", "is_shown"), [((), False), (("-W", "default"), True), (("-W", "error::ResourceWarning"), True)])
def test_a_client_that_is_not_closed_is_shown_where_the_page_of_the_client_says(
    tmp_path: Path, options: tuple[str, ...], is_shown: bool
) -> None:
    source = "from ottla.sync import Producer\n\ndef test_it():\n    Producer('127.0.0.1:9')\n"
    code, output = run(tmp_path, source, *options)
    assert code == 0, output
    assert ("unclosed ottla.sync.Producer" in output) is is_shown
    assert ("PytestUnraisableExceptionWarning" in output) is (options[1:] == ("error::ResourceWarning",))


def test_the_plugin_is_declared_and_waits_for_nothing() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert import_module(declared["project"]["entry-points"]["pytest11"]["ottla"]).__name__ == "ottla.pytest_plugin"
    assert not any("pytest" in dependency for dependency in declared["project"]["dependencies"])
    script = "import ottla.pytest_plugin, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"ottla.pytest_plugin"} == {name for name in loaded.stdout.split() if name.startswith(("ottla.", "msgspec"))}
    without = "import sys; sys.modules['pytest'] = None; import ottla.testing"
    subprocess.run([sys.executable, "-c", without], check=True)
