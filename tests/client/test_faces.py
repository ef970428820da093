"""``ottla.aio`` and ``ottla.sync`` are one interface, typed and documented."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from concurrent.futures import Future
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from ottla import aio, sync
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.membership_settings import MembershipSettings
from ottla.client.options import AdminOptions, AdminSettings, ClusterOptions, ClusterSettings, ConsumerOptions, ProducerOptions
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import checks_of
from ottla.errors import ErrorCode, KafkaError
from ottla.sync.sent_record import SentRecord

FACES: list[tuple[type[Any], type[Any]]] = [(aio.Producer, sync.Producer), (aio.Consumer, sync.Consumer), (aio.Admin, sync.Admin)]
SURFACE: dict[type[Any], str] = {
    aio.Producer: "abort_transaction begin_transaction close commit_transaction flush init_transactions metrics partitions_for send "
    "send_and_wait send_many send_offsets_to_transaction transaction",
    aio.Consumer: "assign assignment beginning_offsets close commit committed end_offsets generation_id group_metadata member_id metrics "
    "offsets_for_times partitions_for pause paused poll position resume seek seek_to_beginning seek_to_end store_offsets subscribe "
    "subscription unsubscribe",
    aio.Admin: "abort_transaction alter_client_quotas alter_configs alter_partition_reassignments alter_replica_log_dirs alter_users "
    "close committed_offsets create_acls create_partitions create_token create_topics delete_acls delete_groups "
    "delete_offsets delete_records delete_topics describe_acls describe_client_quotas describe_cluster "
    "describe_config_of_topics describe_configs describe_features describe_group describe_log_dirs describe_partitions "
    "describe_producers describe_quorum describe_tokens describe_topic describe_transactions describe_users elect_leaders "
    "end_hanging_transaction expire_token fence_producers find_hanging_transactions list_config_resources list_groups "
    "list_partition_reassignments list_topics list_transactions offsets_for_times pending_offsets renew_token replace_configs "
    "set_offsets unregister_broker update_features",
}
"""What an application may call: a name that is added or removed here is a change that users see."""


def public(face: type[Any]) -> dict[str, Any]:
    return {name: getattr(face, name) for name in dir(face) if not name.startswith("_") and hasattr(face, name)}


@pytest.mark.parametrize(("face", "names"), SURFACE.items())
def test_the_public_names_are_these(face: type[Any], names: str) -> None:
    assert " ".join(sorted(public(face))) == names


@pytest.mark.parametrize(("asynchronous", "blocking"), FACES)
def test_both_faces_have_the_same_methods_with_the_same_arguments_and_results(asynchronous: type[Any], blocking: type[Any]) -> None:
    theirs, ours = public(asynchronous), public(blocking)
    assert theirs.keys() == ours.keys()
    for name, method in theirs.items():
        if isinstance(method, property):
            assert isinstance(ours[name], property)
            continue
        expected, found = inspect.signature(method), inspect.signature(ours[name])
        assert found.parameters == expected.parameters, name
        assert str(found.return_annotation).replace("Future", "asyncio.Future").replace("Iterator", "AsyncIterator") in (
            str(expected.return_annotation), str(expected.return_annotation).replace("asyncio.asyncio", "asyncio"),
        ), name  # fmt: skip
    assert ("__aiter__" in dir(asynchronous)) == ("__iter__" in dir(blocking))


def test_both_modules_offer_the_same_names_and_nothing_of_the_wire() -> None:
    assert aio.__all__ == sync.__all__
    for name, method in public(aio.Admin).items():
        hints = str(typing.get_type_hints(method))
        assert "ottla.messages" not in hints.replace("ottla.messages.acl_codes", ""), f"{name}: {hints}"
        offered = set(re.findall(r"ottla\.client\.(?:admin|cluster|meters|fetcher)[a-z_.]*\.([A-Z]\w+)", hints))
        assert offered <= set(aio.__all__), f"{name} takes or returns what its users cannot name"


@pytest.mark.parametrize("face", [face for pair in FACES for face in pair])
def test_every_public_method_says_what_it_does(face: type[Any]) -> None:
    silent = [name for name, method in public(face).items() if not inspect.getdoc(method)]
    assert not silent


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (ClusterOptions, [ClusterSettings]),
        (AdminOptions, [ClusterSettings, AdminSettings]),
        (ProducerOptions, [ClusterSettings, ProducerSettings]),
        (ConsumerOptions, [ClusterSettings, ConsumerSettings, FetchSettings, MembershipSettings]),
    ],
)
def test_what_type_checkers_know_of_settings_is_what_there_is(options: Any, kinds: list[Any]) -> None:
    typed_apart = {"key_deserializer", "value_deserializer"}  # by the overloads of Consumer: they say what a record holds
    assert set(typing.get_type_hints(options)) == {name for kind in kinds for name in checks_of(kind)} - typed_apart


MISTAKES = """
from ottla import aio, sync
sync.Producer(lingr_ms=5)
sync.Producer(acks="banana")
sync.Producer(linger_ms="5")
aio.Consumer(auto_offset_reset="first")
sync.Consumer(group=5)
sync.Admin(linger_ms=5)
producer = sync.Producer(acks="all", linger_ms=5, client_id="x")
producer.send(5)
producer.send("t", partition="0")
sync.Consumer().seek("t", 5)
sync.Consumer().assign([("t", 0)])
for record in sync.Consumer(value_deserializer=lambda content: len(content or b"")):
    record.value + 1
    record.key + 1
    sync.Consumer().commit(record)
for plain in sync.Consumer(group_id="g"):
    plain.value.decode()
producer.send("t", callback=print)
producer.produce("t", b"value")
sync.Consumer().getmany()
from ottla.testing import History
History().watch(producer).produce("t", b"value")
for watched in History().watch(sync.Consumer()):
    watched.value + 1
"""


def test_a_type_checker_catches_what_the_client_would_refuse_and_takes_the_programs_of_the_pages(tmp_path: Path) -> None:
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    docs = Path(__file__).parents[2] / "docs"
    pages = [(docs / name).read_text() for name in ("client.md", "transactions.md")]
    programs = [text for page in pages for text in re.findall(r"```python\n(.*?)```", page, re.S)]
    files = [f"program_{number}.py" for number in range(len(programs))]
    for name, text in zip(files, programs, strict=True):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "mistakes.py", *files]
    source = Path(aio.__file__).parent.parent
    done = subprocess.run(command, cwd=tmp_path, env={"MYPYPATH": str(source)}, capture_output=True, text=True, check=False)
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if line.startswith("mistakes.py:") and ": error:" in line}
    assert lines == {3, 4, 5, 6, 7, 8, 10, 11, 12, 16, 19, 20, 21, 22, 24, 26}, done.stdout + done.stderr
    assert len(programs) > 15
    assert "program_" not in done.stdout, f"a program of the pages: {done.stdout}"


@pytest.mark.parametrize(
    ("make", "settings", "text"),
    [
        (sync.Producer, {"lingr_ms": 5}, "unknown setting 'lingr_ms'; did you mean linger_ms?"),
        (sync.Producer, {"linger.ms": 5}, "write it with _, as linger_ms"),
        (sync.Consumer, {"auto_offset_reset": "earlist"}, "did you mean earliest?"),
        (sync.Consumer, {"partition_assignment_strategy": ["rang"]}, "did you mean range?"),
        (sync.Consumer, {"session_timeout_ms": 1000}, "heartbeat_interval_ms=3000 must be below session_timeout_ms=1000"),
        (sync.Admin, {"group_id": "g"}, "unknown setting 'group_id'"),
        (sync.Producer, {"retries": 5}, "no setting 'retries': a record is sent again until delivery_timeout_ms"),
        (sync.Consumer, {"metric.reporters": "a"}, "no setting 'metric.reporters': metrics() returns the client's metrics"),
        (sync.Consumer, {"group_protocol": "new"}, "group_protocol='new': it must be one of classic, consumer"),
        (
            sync.Consumer,
            {"group_protocol": "consumer", "session_timeout_ms": 45_000},
            "session_timeout_ms has no effect with group_protocol=consumer",
        ),
        (sync.Consumer, {"group_protocol": "consumer", "heartbeat_interval_ms": 50}, "heartbeat_interval_ms has no effect with"),
        (
            sync.Consumer,
            {"group_protocol": "consumer", "partition_assignment_strategy": ["range"]},
            "partition_assignment_strategy has no effect with group_protocol=consumer: the coordinator divides the partitions",
        ),
        (sync.Consumer, {"group_remote_assignor": "range"}, "group_remote_assignor needs group_protocol='consumer'"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_nearest_name(make: Any, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        make("127.0.0.1:1", **settings)
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert text in str(refused.value)


def test_a_future_of_either_face_is_what_its_users_expect() -> None:
    assert issubclass(SentRecord, Future)


def test_what_is_a_number_on_the_wire_is_printed_by_its_name() -> None:
    kinds = [found for name in aio.__all__ if isinstance(found := getattr(aio, name), type) and issubclass(found, IntEnum)]
    assert len(kinds) > 5
    for one in (one for kind in kinds if kind is not ErrorCode for one in kind):
        assert str(one) == f"{one}" == one.name
        assert one == one.value
