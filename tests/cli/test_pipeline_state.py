"""``ottla pipeline state``: it shows the last batch, also while another one is being written. Without Spark."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from ottla.cli.main import cli
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic, Producer

TOPIC = "devices-highest-seen-changelog"
WRITTEN_MS_MAX = 15_000
"""After that the broker ends the transaction, whose commit then fails."""


def test_a_batch_that_is_being_written_is_not_waited_for(tmp_path: Path):
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "broker"),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    with (
        BrokerThread(properties) as broker,
        Admin(broker.bootstrap) as admin,
        Producer(broker.bootstrap, transactional_id="devices-highest", transaction_timeout_ms=WRITTEN_MS_MAX) as producer,
    ):
        assert admin.create_topics([NewTopic(TOPIC, 1)]) == {TOPIC: None}
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, b'{"n":1}', key=b"device-7")
        with producer.transaction():
            producer.send_and_wait(TOPIC, b'{"n":2}', key=b"device-7")
            shown = CliRunner().invoke(cli, ["pipeline", "state", "devices", "seen", "-B", broker.bootstrap])
        assert shown.exit_code == 0, shown.output
        assert 'device-7  {"n":1}' in shown.output
