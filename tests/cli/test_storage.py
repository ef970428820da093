"""``ottla storage verify`` and ``strays`` on the directory of a real broker, and ``ottla storage format`` before its first start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.broker.sasl import authenticate_by_scram
from tests.foreign_clients.wire import RawClient

from ottla.cli.scram_argument import credential_of
from ottla.errors import ErrorCode, StorageError
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.runtime.serve import BrokerThread
from ottla.security.scram import ScramMechanism
from ottla.sync import Admin, Producer


def verify(directory: Path, *options: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "ottla", "storage", "verify", *options, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_an_intact_a_damaged_a_used_and_a_foreign_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}) as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("orders", b"x" * 100).result(10)
        code, _, problem = verify(directory)
        assert (code, f"in use by a broker (process {os.getpid()} has it)" in problem) == (1, True)
    code, text, _ = verify(directory)
    assert (code, text.split(": ")[-1].strip()) == (0, "intact")
    with open(directory / "orders-0" / "00000000000000000000.log", "r+b") as file:
        file.seek(90)
        file.write(b"!")
    code, text, _ = verify(directory, "--format", "json")
    [item] = json.loads(text)["items"]
    assert (code, item["is_damaged"]) == (1, True)
    assert [finding["path"] for finding in item["findings"]] == ["orders-0/00000000000000000000.log"]
    assert verify(directory)[1].startswith("DAMAGE  orders-0/")
    (directory / ".kafka_cleanshutdown").unlink()  # as after a kill
    code, text, _ = verify(directory)
    size = (directory / "orders-0" / "00000000000000000000.log").stat().st_size
    assert (code, text.splitlines()[-1].partition("bytes: ")[2]) == (0, f"torn; the next start cuts off {size} bytes")
    assert f"torn after 0 bytes; the next start cuts off the {size} after them" in text
    assert verify(directory, "--strict")[0] == 1
    assert verify(tmp_path)[0] == 1
    assert verify(tmp_path / "nowhere")[0] == 2


def strays(directory: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "ottla", "storage", "strays", *options, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_replicas_that_a_start_set_aside_are_listed_and_deleted_while_no_broker_uses_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
    with BrokerThread(properties) as broker, Producer(broker.bootstrap) as producer:
        for topic in ("gone", "kept"):
            producer.send(topic, b"x" * 100).result(10)
    shutil.copytree(directory / "gone-0", tmp_path / "copy")
    with BrokerThread(properties) as broker, Admin(broker.bootstrap) as admin:
        assert admin.delete_topics(["gone"]) == {"gone": None}
    shutil.copytree(tmp_path / "copy", directory / "gone-0")  # as a kill before the renaming leaves it
    with BrokerThread(properties):
        code, text = strays(directory, "--format", "json")
        [item] = json.loads(text)["items"]
        assert (code, item["partition"], item["is_deleted"]) == (0, "gone-0", False)
        assert item["topic_id"] in (tmp_path / "copy" / "partition.metadata").read_text()
        assert item["size_bytes"] >= 160
        code, text = strays(directory, "--delete")
        assert (code, "in use by a broker" in text) == (1, True)
        assert Path(item["path"]).exists()
    (tmp_path / "none").mkdir()
    shutil.copy(directory / "meta.properties", tmp_path / "none")
    code, text = strays(directory, str(tmp_path / "none"))
    assert (code, f"`ottla dump-log --records {item['path']}/*.log`" in text) == (0, True)
    code, text = strays(directory, "--delete")
    assert (code, text.splitlines()[-1]) == (0, f"strays: 1, {item['size_bytes']} bytes")
    assert not Path(item["path"]).exists()
    assert strays(directory)[1].startswith("strays: 0,")
    assert (directory / "kept-0").is_dir()
    assert strays(tmp_path)[0] == 1


def format_(directory: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "ottla", "storage", "format", "-X", f"log.dirs={directory}/a,{directory}/b", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_level_that_is_not_released_needs_a_key(tmp_path: Path) -> None:
    """Kafka 4.3 has 4.4-IV0, as level 31, and nodes of it alone support that level."""
    assert format_(tmp_path, "--release-version", "4.4")[0] == 1
    assert not list(tmp_path.iterdir()), "nothing is made where something is wrong"
    unstable = "unstable.feature.versions.enable"
    assert format_(tmp_path, "--release-version", "4.4", "-X", f"{unstable}=true")[0] == 0
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{tmp_path}/a,{tmp_path}/b", unstable: "true"}
    with BrokerThread(properties) as broker, RawClient(broker.addresses["PLAINTEXT"][1]) as client:
        answer = client.ask(ApiVersionsRequest("probe", "1"), 4)
        assert {feature.name: feature.max_version_level for feature in answer.finalized_features}["metadata.version"] == 31
        assert {feature.name: feature.max_version for feature in answer.supported_features}["metadata.version"] == 31


def test_a_cluster_begins_at_the_metadata_version_that_it_was_formatted_for(tmp_path: Path) -> None:
    """As after kafka-storage format --release-version: 4.0 has level 25, and eligible leader replicas came later."""
    assert format_(tmp_path, "--release-version", "2.8")[0] == 1
    assert format_(tmp_path, "--feature", "metadata.version=31")[0] == 1
    assert not list(tmp_path.iterdir()), "nothing is made where something is wrong"
    code, text = format_(tmp_path, "--release-version", "4.0", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg")
    assert (code, "MkU3OEVBNTcwNTJENDM2Qg" in text) == (0, True)
    assert "already formatted" in format_(tmp_path)[1]
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{tmp_path}/a,{tmp_path}/b"}
    for level in (25, 26):  # what was raised stays so
        with BrokerThread(properties) as broker, Admin(broker.bootstrap) as admin:
            assert admin.describe_cluster().cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"
            with RawClient(broker.addresses["PLAINTEXT"][1]) as client:
                finalized = client.ask(ApiVersionsRequest("probe", "1"), 4).finalized_features
            levels = {feature.name: feature.max_version_level for feature in finalized}
            assert levels == {"metadata.version": level, "transaction.version": 2, "group.version": 1}
            admin.update_features({"metadata.version": 26})


def storage(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", "ottla", "storage", *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_an_id_is_22_characters_that_a_command_line_takes(tmp_path: Path) -> None:
    code, text = storage("random-uuid")
    assert (code, len(text.strip())) == (0, 22)
    assert format_(tmp_path, "--cluster-id", text.strip())[0] == 0


@pytest.mark.slow
def test_info_shows_the_owner_and_the_problem_of_each_directory(tmp_path: Path) -> None:
    dirs = f"log.dirs={tmp_path}/a,{tmp_path}/b"
    code, text = storage("info", "-X", dirs)
    assert (code, text.count("not formatted")) == (1, 2)
    assert not list(tmp_path.iterdir()), "nothing is changed"
    format_(tmp_path, "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg")
    code, text = storage("info", "-X", dirs, "--format", "json")
    states = json.loads(text)["items"]
    assert (code, [state["problem"] for state in states]) == (0, [None, None])
    assert {state["identity"]["cluster_id"] for state in states} == {"MkU3OEVBNTcwNTJENDM2Qg"}
    assert len({state["identity"]["directory_id"] for state in states}) == 2
    code, text = storage("info", "-X", dirs, "-X", "node.id=7")
    assert (code, text.count("belongs to node.id=1, this is node.id=7")) == (1, 2)
    (tmp_path / "b" / "meta.properties").write_text("version=1\nnode.id=1\n")
    code, text = storage("info", "-X", dirs)
    assert (code, "belongs to another system" in text) == (1, True)


@pytest.mark.slow
def test_formatting_again_takes_up_what_is_missing_and_nothing_of_another_cluster(tmp_path: Path) -> None:
    assert format_(tmp_path, "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg")[0] == 0
    shutil.rmtree(tmp_path / "b")
    code, text = format_(tmp_path)
    assert (code, "--ignore-formatted" in text) == (1, True)
    code, text = format_(tmp_path, "--ignore-formatted", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA")
    assert (code, "belongs to cluster MkU3OEVBNTcwNTJENDM2Qg" in text) == (1, True)
    assert not (tmp_path / "b").exists(), "nothing is made where something is wrong"
    (tmp_path / "b").touch()
    code, text = format_(tmp_path, "--ignore-formatted")
    assert (code, f"{tmp_path}/b is no directory: remove it, or name another path in log.dirs" in text) == (1, True)
    (tmp_path / "b").unlink()
    code, text = format_(tmp_path, "--ignore-formatted")
    assert (code, text) == (0, f"left as it is: {tmp_path}/a; formatted: {tmp_path}/b, for cluster MkU3OEVBNTcwNTJENDM2Qg\n")
    code, text = format_(tmp_path, "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA")
    assert "belongs to cluster MkU3OEVBNTcwNTJENDM2Qg, not to AAAAAAAAAAAAAAAAAAAAAA" in text, "also without --ignore-formatted"
    assert f"or, if {tmp_path}/a holds nothing that you need, remove it and format again" in text
    assert format_(tmp_path, "-g") == (0, f"left as it is: {tmp_path}/a, {tmp_path}/b, for cluster MkU3OEVBNTcwNTJENDM2Qg\n")
    assert storage("info", "-X", f"log.dirs={tmp_path}/a,{tmp_path}/b")[0] == 0


@pytest.mark.parametrize("roles", ["broker,controller", "broker"])
@pytest.mark.parametrize("missing", ["a", "b", "ab"])
def test_a_node_of_several_names_the_command_that_formats_what_is_missing(tmp_path: Path, roles: str, missing: str) -> None:
    voters = "1@127.0.0.1:1,2@127.0.0.1:2" if "controller" in roles else "2@127.0.0.1:2,3@127.0.0.1:3"
    listeners = "PLAINTEXT://127.0.0.1:0" + (",CONTROLLER://127.0.0.1:0" if "controller" in roles else "")
    properties = {"process.roles": roles, "node.id": "1", "controller.quorum.voters": voters, "controller.listener.names": "CONTROLLER"}
    assert format_(tmp_path, "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg")[0] == 0
    (tmp_path / "b" / "t-0").mkdir()
    for name in missing:
        shutil.rmtree(tmp_path / name)
    with pytest.raises(StorageError) as refused:
        BrokerThread(properties | {"listeners": listeners, "log.dirs": f"{tmp_path}/a,{tmp_path}/b"}).start()
    text = str(refused.value)
    command = "`ottla storage format FILE --cluster-id MkU3OEVBNTcwNTJENDM2Qg --ignore-formatted`"
    assert (command in text) == (missing == "b"), text
    assert ("has forgotten how it voted" in text) == (missing == "ab" and "controller" in roles), text
    assert ("the metadata log is missing" in text) == (missing == "a"), text


def test_a_directory_is_formatted_with_users(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from-a-file\n")
    given = ["-X", f"log.dirs={tmp_path / 'data'}", "-S", "SCRAM-SHA-256=[name=alice,password=alice-secret]"]
    given += ["-S", f"SCRAM-SHA-512=[name='bob',iterations=8192,password-file={tmp_path / 'password'}]"]
    done = subprocess.run([sys.executable, "-m", "ottla", "storage", "format", *given], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    guarded = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
    with BrokerThread({**guarded, "log.dirs": str(tmp_path / "data")}) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        for name, password, mechanism, code in [
            ("alice", "alice-secret", ScramMechanism.SHA_256, 0),
            ("bob", "from-a-file", ScramMechanism.SHA_512, 0),
            ("alice", "alice-secret", ScramMechanism.SHA_512, ErrorCode.SASL_AUTHENTICATION_FAILED),
        ]:
            with RawClient(port) as client:
                assert authenticate_by_scram(client, name, password, mechanism).error_code == code


@pytest.mark.parametrize(
    "text",
    [
        "alice", "PLAIN=[name=a,password=hush]", "SCRAM-SHA-256=[password=hush]", "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=,password=hush]",
        "SCRAM-SHA-256=[name=a,password=hush,iterations=1]", "SCRAM-SHA-256=[name=a,password=hush,iterations=1000000]",
        "SCRAM-SHA-256=[name=a,password=hush,colour=red]", "SCRAM-SHA-256=[name=a,password=hush,password=hush]",
        "SCRAM-SHA-256=[name=a,saltedpassword=aHVzaA==]", "SCRAM-SHA-256=[name=a,saltedpassword=hush!,salt=AAAA]",
        "SCRAM-SHA-256=[name=a,saltedpassword=aHVzaA==,salt=AAAA]", "SCRAM-SHA-256=[name=a,password-file=/nowhere/hush]",
    ],
)  # fmt: skip
def test_a_user_that_cannot_be_read_is_not_shown(text: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        credential_of(text)
    assert "hush" not in caught.value.message
