"""Apache Kafka 4.3's own command-line tools, from Maven Central, do their work on a broker process."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.interop.tools import run

TOOLS = "org.apache.kafka.tools."
RECORD_COUNT = 1000
TOOL_SECONDS_MAX = 60
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("java-tools")) as process:
        yield process


@pytest.fixture
def tool(java: list[str], broker: BrokerProcess) -> Tool:
    def run_tool(name: str, *arguments: str, stdin: str | None = None) -> str:
        class_name = name if name.startswith("kafka.") else TOOLS + name
        return run(*java, class_name, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin, seconds_max=TOOL_SECONDS_MAX)

    return run_tool


@pytest.fixture
def topic(request: pytest.FixtureRequest, tool: Tool) -> str:
    """A topic of this test's own, with 1,000 records."""
    name = request.node.name.removeprefix("test_").replace("_", "-")
    assert f"Created topic {name}" in tool("TopicCommand", "--create", "--topic", name, "--partitions", "3", "--replication-factor", "1")
    tool("ConsoleProducer", "--topic", name, stdin="".join(f"value-{number}\n" for number in range(RECORD_COUNT)))
    return str(name)


def offsets(tool: Tool, topic: str, time: str = "latest") -> dict[int, int]:
    lines = [line.split(":") for line in tool("GetOffsetShell", "--topic", topic, "--time", time).split()]
    return {int(partition): int(offset) for _, partition, offset in lines}


def test_topic_command(tool: Tool, topic: str) -> None:
    assert topic in tool("TopicCommand", "--list").split()
    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 5\s+ReplicationFactor: 1", described)
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 5
    tool("TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool("TopicCommand", "--list").split()


def test_config_command(tool: Tool, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "max.message.bytes=2000000,retention.ms=5000")
    described = tool("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "max.message.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000000" in described
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms")
    described = tool("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "retention.ms" not in described
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    tool("kafka.admin.ConfigCommand", "--alter", *broker, "--add-config", "message.max.bytes=2000001")
    assert "message.max.bytes=2000001" in tool("kafka.admin.ConfigCommand", "--describe", *broker)
    tool("kafka.admin.ConfigCommand", "--alter", *broker, "--delete-config", "message.max.bytes")
    assert "message.max.bytes=2000001" not in tool("kafka.admin.ConfigCommand", "--describe", *broker, "--all")


def test_consumer_group_command(tool: Tool, topic: str) -> None:
    group = ("--group", f"group-{topic}")
    read = tool("consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", str(RECORD_COUNT), *group)
    assert len(read.split()) >= RECORD_COUNT
    assert group[1] in tool("consumer.group.ConsumerGroupCommand", "--list").split()
    described = tool("consumer.group.ConsumerGroupCommand", "--describe", *group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group[1])]
    assert sum(int(row[3]) for row in rows) == RECORD_COUNT
    assert {row[5] for row in rows} == {"0"}, "nothing is behind"
    tool("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--to-earliest", "--execute", "--topic", topic, *group)
    described = tool("consumer.group.ConsumerGroupCommand", "--describe", *group)
    assert sum(int(line.split()[5]) for line in described.splitlines() if line.startswith(group[1])) == RECORD_COUNT
    tool("consumer.group.ConsumerGroupCommand", "--delete-offsets", "--topic", topic, *group)
    tool("consumer.group.ConsumerGroupCommand", "--delete", *group)
    assert group[1] not in tool("consumer.group.ConsumerGroupCommand", "--list").split()


def test_consumer_group_command_of_the_consumer_protocol(tool: Tool, topic: str) -> None:
    group = ("--group", f"group-{topic}")
    protocol = ("--consumer-property", "group.protocol=consumer")
    read = tool("consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", str(RECORD_COUNT), *group, *protocol)
    assert len(read.split()) >= RECORD_COUNT
    assert re.search(rf"{group[1]}\s+Consumer\s+consumer", tool("GroupsCommand", "--list"))
    described = tool("consumer.group.ConsumerGroupCommand", "--describe", *group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group[1])]
    assert sum(int(row[3]) for row in rows) == RECORD_COUNT
    state = tool("consumer.group.ConsumerGroupCommand", "--describe", "--state", "--verbose", *group)
    assert re.search(rf"{group[1]}\s.*\suniform\s+Empty\s", state)
    assert "ASSIGNMENT-EPOCH" not in tool("consumer.group.ConsumerGroupCommand", "--describe", "--members", *group)
    tool("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--to-earliest", "--execute", "--topic", topic, *group)
    tool("consumer.group.ConsumerGroupCommand", "--delete", *group)
    assert group[1] not in tool("consumer.group.ConsumerGroupCommand", "--list").split()


def test_get_offset_shell(tool: Tool, topic: str) -> None:
    assert sum(offsets(tool, topic).values()) == RECORD_COUNT
    assert set(offsets(tool, topic, "earliest").values()) == {0}
    assert max(offsets(tool, topic, "max-timestamp").values()) > 0


def test_delete_records_command(tool: Tool, topic: str, tmp_path: Path) -> None:
    partition, end = max(offsets(tool, topic).items(), key=lambda item: item[1])
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": partition, "offset": end - 5}], "version": 1}))
    assert f"low_watermark: {end - 5}" in tool("DeleteRecordsCommand", "--offset-json-file", str(plan))
    assert offsets(tool, topic, "earliest")[partition] == end - 5


def test_log_dirs_command(tool: Tool, topic: str) -> None:
    shown = json.loads(tool("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1])
    [broker] = shown["brokers"]
    partitions = {entry["partition"]: entry["size"] for directory in broker["logDirs"] for entry in directory["partitions"]}
    assert sorted(partitions) == [f"{topic}-{index}" for index in range(3)]
    assert max(partitions.values()) > RECORD_COUNT


def test_console_producer_and_consumer(tool: Tool, topic: str) -> None:
    tool(
        "ConsoleProducer", "--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:", stdin="k:last\n"
    )
    shown = tool(
        "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", str(RECORD_COUNT + 1),
        "--formatter-property", "print.key=true",
    )  # fmt: skip
    assert sorted(shown.splitlines()[: RECORD_COUNT + 1]) == sorted([*(f"null\tvalue-{n}" for n in range(RECORD_COUNT)), "k\tlast"])


def test_producer_and_consumer_performance(java: list[str], broker: BrokerProcess, tool: Tool, topic: str) -> None:
    options = (
        "--num-records",
        "20000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--command-property",
        f"bootstrap.servers={broker.bootstrap}",
    )
    written = run(*java, TOOLS + "ProducerPerformance", "--topic", topic, *options, seconds_max=TOOL_SECONDS_MAX)
    assert "20000 records sent" in written
    read = tool("ConsumerPerformance", "--topic", topic, "--num-records", "20000")
    assert int(read.splitlines()[1].split(",")[4]) >= 20_000


def test_verifiable_producer_and_consumer(java: list[str], broker: BrokerProcess, tool: Tool, topic: str) -> None:
    events = [json.loads(line) for line in tool("VerifiableProducer", "--topic", topic, "--max-messages", "100").splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 100
    assert events[-1] | {"sent": 100, "acked": 100} == events[-1]
    command = [*java, TOOLS + "VerifiableConsumer", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", f"v-{topic}"]
    limits = ["--max-messages", str(RECORD_COUNT + 100), "--reset-policy", "earliest"]
    consumed = 0
    with subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:  # it ends by itself
            event = json.loads(line)
            consumed += event["count"] if event["name"] == "records_consumed" else 0
            assert event.get("success", True)
    assert consumed == RECORD_COUNT + 100


def test_broker_api_versions_command(tool: Tool) -> None:
    shown = tool("BrokerApiVersionsCommand")
    served = dict(re.findall(r"^\t(\w+)\(\d+\): .*\[usable: (\d+)\]", shown, re.MULTILINE))
    assert {"Produce": "13", "Fetch": "18", "IncrementalAlterConfigs": "1", "DescribeQuorum": "2"}.items() <= served.items()


def test_quorum_feature_leader_and_group_commands(tool: Tool, topic: str) -> None:
    assert re.search(r"LeaderId:\s+1\n", tool("MetadataQuorumCommand", "describe", "--status"))
    assert "metadata.version" in tool("FeatureCommand", "describe")
    tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    tool("consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "1", "--group", f"group-{topic}")
    assert re.search(rf"group-{topic}\s+Classic\s+consumer", tool("GroupsCommand", "--list"))


def test_reassign_partitions_command(tool: Tool, topic: str, tmp_path: Path) -> None:
    """To where they are already: with one broker there is nowhere else."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    file = ("--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignment" in tool("reassign.ReassignPartitionsCommand", *file, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed" in tool("reassign.ReassignPartitionsCommand", *file, "--verify")


def test_tools_that_ask_the_controller(java: list[str], tmp_path: Path) -> None:
    """``--bootstrap-controller``, on the listener of the controller."""
    port = lasting_port()
    listeners = f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}"
    with BrokerProcess(tmp_path, listeners=listeners, controller_listener_names="CONTROLLER"):

        def ask(name: str, *arguments: str) -> str:
            return run(*java, name, "--bootstrap-controller", f"127.0.0.1:{port}", *arguments, seconds_max=TOOL_SECONDS_MAX)

        assert re.search(r"LeaderId:\s+1\n", ask(TOOLS + "MetadataQuorumCommand", "describe", "--status"))
        ask(
            "kafka.admin.ConfigCommand",
            "--alter",
            "--entity-type",
            "brokers",
            "--entity-name",
            "1",
            "--add-config",
            "message.max.bytes=1000012",
        )
        described = ask("kafka.admin.ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", "1")
        assert "message.max.bytes=1000012" in described
        assert "metadata.version" in ask(TOOLS + "FeatureCommand", "describe")


def test_loggers_of_the_broker(tool: Tool) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    assert "ottla.broker.upkeep.cleaner=INFO" in tool("kafka.admin.ConfigCommand", "--describe", *loggers)
    tool("kafka.admin.ConfigCommand", "--alter", *loggers, "--add-config", "ottla.broker.upkeep.cleaner=DEBUG")
    assert "ottla.broker.upkeep.cleaner=DEBUG" in tool("kafka.admin.ConfigCommand", "--describe", *loggers)
    tool("kafka.admin.ConfigCommand", "--alter", *loggers, "--delete-config", "ottla.broker.upkeep.cleaner")
    assert "ottla.broker.upkeep.cleaner=INFO" in tool("kafka.admin.ConfigCommand", "--describe", *loggers)
