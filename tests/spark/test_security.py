"""Spark over SASL_SSL: a batch, a stream, an exactly-once sink, pipelines and views; passwords are shown nowhere."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from tests.broker.certificates import Authority
from tests.spark.conftest import PROPERTIES

from ottla.runtime.serve import BrokerThread
from ottla.spark import read_topic, to_topic
from ottla.spark.queries import make_views
from ottla.spark.runner import Runner
from ottla.sync import Admin, Consumer, NewTopic, Producer
from ottla.types import TopicPartition

PASSWORD = "marked-secret"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{PASSWORD}" user_alice="{PASSWORD}";'


class Guarded:
    def __init__(self, directory: Path) -> None:
        authority = Authority(directory / "certificates")
        self.settings = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(authority.trust),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": JAAS,
        }
        self.broker = BrokerThread(
            PROPERTIES
            | {
                "log.dirs": str(directory / "data"),
                "listeners": "SASL_SSL://127.0.0.1:0",
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL",
                "security.inter.broker.protocol": "SASL_SSL",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
                "ssl.keystore.location": str(authority.issue("broker").store),
                "ssl.truststore.location": str(authority.trust),
            }
        )
        self.file = directory / "alice.properties"
        self.file.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    @property
    def client(self) -> dict:
        return {key.replace(".", "_"): value for key, value in self.settings.items()}

    def create(self) -> None:
        """Topics, and three records in one of them."""
        with Admin(self.broker.bootstrap, **self.client) as admin:
            admin.create_topics([NewTopic(name, 1) for name in ("orders", "batch", "stream", "copies")])
        with Producer(self.broker.bootstrap, **self.client) as producer:
            for number in range(3):
                producer.send("orders", b'{"id":%d}' % number).result()

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap} | {f"kafka.{key}": value for key, value in self.settings.items()}

    def values(self, topic: str, count: int) -> list[bytes]:
        with Consumer(self.broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed", **self.client) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            records = iter(consumer)
            return sorted(next(records).value or b"" for _ in range(count))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with made.broker:
        made.create()
        yield made


@pytest.mark.spark
@pytest.mark.slow
def test_batches_and_streams_connect_as_their_options_say_and_show_no_password(spark, guarded: Guarded, tmp_path: Path) -> None:
    rows = spark.read.format("ottla").options(**guarded.options, subscribe="orders").load()
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        rows.explain(extended=True)
    rows.select("value").write.format("ottla").options(**guarded.options, topic="batch").mode("append").save()
    assert guarded.values("batch", 3) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']

    stream = read_topic(spark, "orders", "id int", bootstrap=guarded.broker.bootstrap, bad_rows="batch", options=guarded.options)
    writer = to_topic(stream, "stream", options=guarded.options, checkpoint="directory")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert guarded.values("stream", 3) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']
    shown.write(json.dumps([dict(progress) for progress in query.recentProgress], default=str) + repr(query.status))
    shown.write("".join(path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()))

    wrong = guarded.options | {"kafka.sasl.jaas.config": JAAS.replace(f'password="{PASSWORD}"', 'password="guessed-marked-secret"')}
    with pytest.raises(PySparkException, match="SASL_AUTHENTICATION_FAILED") as caught:
        spark.read.format("ottla").options(**wrong, subscribe="orders").load().count()
    with pytest.raises(PySparkException, match="SASL_AUTHENTICATION_FAILED") as refused:
        rows.select("value").write.format("ottla").options(**wrong, topic="batch").mode("append").save()
    assert "marked-secret" not in shown.getvalue() + str(caught.value) + str(refused.value)


@pytest.mark.spark
@pytest.mark.slow
def test_a_pipeline_and_a_view_use_the_client_options_of_their_runner(spark, guarded: Guarded, tmp_path: Path) -> None:
    client = guarded.options
    bootstrap = client.pop("kafka.bootstrap.servers")
    said: list[str] = []

    def copies(session):
        return to_topic(read_topic(session, "orders", "id int"), "copies")

    runner = Runner(
        spark, "copy", {"copies": copies}, checkpoints=tmp_path, bootstrap=bootstrap, checkpoint="directory", until_caught_up=True,
        client=client, say=said.append,
    )  # fmt: skip
    assert runner.run()
    assert guarded.values("copies", 3) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']
    make_views(spark, ["orders"], {"orders": "id int"}, bootstrap=bootstrap, since_ms=None, is_stream=False, client=client)
    assert [row.total for row in spark.sql("select sum(id) as total from orders").collect()] == [3]
    assert PASSWORD not in "".join(said)


def test_commands_of_pipelines_and_queries_connect_by_the_file_of_the_client(guarded: Guarded) -> None:
    for arguments, code, says in ((["pipeline", "list"], 0, ""), (["sql", "select * from nosuch"], 1, "there is no topic 'nosuch'")):
        command = [sys.executable, "-m", "ottla", *arguments, "-B", guarded.broker.bootstrap, "--command-config", str(guarded.file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, says in done.stderr) == (code, True), done.stderr
