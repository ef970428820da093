"""What is small and met every day: pipes that end, words in tables, hints, and files that cannot be written."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.test_foreign_words import said

from ottla.cli.client_settings import client_settings
from ottla.cli.cluster_health import users_first
from ottla.cli.main import cli
from ottla.cli.nodes.plan import LAST_PORT, PORT_MAX, choose_ports
from ottla.cli.offsets import parse_offsets
from ottla.cli.output import print_rows, with_way_out
from ottla.client.transaction_errors import FENCED, ProducerFencedError, of_addition
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.types import TopicPartition


@pytest.mark.parametrize("count", [0, 1])
def test_a_reader_that_ends_early_is_no_failure(count: int) -> None:
    """As `| true` and `| head -1` are: with what is printed at once, and with what is flushed at the end."""
    command = [sys.executable, "-m", "ottla", "config", "keys", *(["log.cleaner.threads"] if count == 0 else [])]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=buffered)
    assert process.stdout is not None
    assert process.stderr is not None
    for _ in range(count):
        process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    assert (process.wait(60), errors) == (0, "")
    process.stderr.close()


def test_a_table_says_yes_and_no(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("text", "c", ("a", "b"), [(True, False)])
    assert capsys.readouterr().out.split() == ["A", "B", "yes", "no"]
    print_rows("json", "c", ("a", "b"), [(True, False)])
    assert '"a": true' in capsys.readouterr().out


def test_a_bundle_that_cannot_be_written_is_refused_before_anything_is_gathered(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.touch()
    for path, why in (
        (tmp_path / "absent" / "b.tar.gz", f"there is no directory {tmp_path / 'absent'}"),
        (there, "the file is there already"),
    ):
        done = CliRunner().invoke(cli, ["debug", "bundle", "--output", str(path), "-B", "127.0.0.1:1"])
        assert (done.exit_code, why in " ".join(done.stderr.split())) == (2, True), done.stderr


def test_a_cluster_above_the_ports_of_nodes_gets_one_there() -> None:
    """`ottla cluster add` failed: no ports were free "from 63096 to 32000"."""
    assert choose_ports(1, LAST_PORT + 1) > LAST_PORT
    with pytest.raises(KafkaError, match=r"of the ports from 65535 to 65535 no 2 are free one after the other"):
        choose_ports(2, PORT_MAX)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (("topic", "alter", "t", "-p", "5"), "`ottla topic add-partitions NAME -p COUNT`"),
        (("topic", "-B", "h:1", "list"), "topic COMMAND -B HOST:PORT`"),
        (("-B", "h:1", "topic", "list"), "COMMAND -B HOST:PORT`"),
        (("group", "--command-config", "f", "list"), "group COMMAND --command-config FILE`"),
        (("config", "get", "topic", "orders"), "`ottla config get --topic orders`"),
        (("config", "set", "topic", "orders", "retention.ms=5"), "`ottla config set retention.ms=5 --topic orders`"),
    ],
)
def test_a_word_at_another_place_is_refused_with_the_call_that_is_meant(typed: tuple[str, ...], text: str) -> None:
    assert text in said(*typed)


def test_the_ends_of_partitions_have_the_names_of_other_tools() -> None:
    assert {parse_offsets(word, 0) for word in ("start", "oldest", "earliest", "beginning")} == {parse_offsets("start", 0)}
    assert {parse_offsets(word, 0) for word in ("end", "newest", "latest")} == {parse_offsets("end", 0)}


@pytest.mark.parametrize("message", ["", "t-0"])
def test_a_producer_that_was_fenced_is_said_what_happened_and_what_to_do(message: str) -> None:
    error = of_addition(KafkaError(ErrorCode.PRODUCER_FENCED, message))
    assert isinstance(error, ProducerFencedError)
    assert error.message == (f"{message}: {FENCED}" if message else FENCED)
    assert "make a new one" in error.message


def test_a_transactional_id_is_refused_by_produce_which_writes_no_transactions() -> None:
    text = said("produce", "t", "-X", "transactional.id=a")
    assert "produce writes no transactions: leave transactional.id out" in text


@pytest.mark.parametrize(("layout", "given"), [("%k:%v\\n", "-k"), ("%%%k{hex}:%v\\n", "-k"), ("%p %v\\n", "-p")])
def test_what_each_record_has_is_not_given_for_all(layout: str, given: str) -> None:
    """The key of the option was dropped without a word."""
    text = said("produce", "t", "-f", layout, given, "1")
    assert f"{given} is for every record, and %{given[1]} of the format has each record's own: leave one of them out" in text


def test_a_range_of_times_with_a_second_at_says_how_it_is_written() -> None:
    with pytest.raises(KafkaError, match="a range is @T1:T2, with one @"):
        parse_offsets("@2020-01-01:@now", now_ms=0)


def test_internal_topics_are_listed_after_those_of_users() -> None:
    topics = [TopicPartition(name, 0) for name in ("__consumer_offsets", "a", "b", "__transaction_state")]
    assert [key.topic for key in sorted(topics, key=users_first)] == ["a", "b", "__consumer_offsets", "__transaction_state"]


def test_an_argument_that_is_no_utf_8_is_bytes_of_a_record_or_a_wrong_call(tmp_path: Path) -> None:
    """Each of these was a traceback."""
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:

        def ottla(*words: bytes, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            command = [sys.executable, "-m", "ottla", *map(os.fsdecode, words), "-B", broker.bootstrap]
            return subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)

        written = ottla(b"produce", b"t", b"-k", b"k\xff", b"-H", b"h=\xfe", data=b"v\n")
        assert (written.returncode, written.stderr) == (0, b"")
        printed = ottla(b"consume", b"t", b"--exit", b"-e", b"^k\xff$", b"-f", b"%k\xfd%h{%k=%v}\n")
        assert (printed.returncode, printed.stdout) == (0, b"k\xff\xfdh=\xfe\n")
        refused = ottla(b"topic", b"describe", b"t\xff")
        assert refused.returncode == 2
        assert refused.stderr == b"Error: b't\\xff' is an argument that is no UTF-8; here it is to be text\n"


def test_a_warning_of_a_client_is_a_line_of_its_command() -> None:
    """It had no ``ottla: `` before it, and looked like another program's."""
    client_settings()
    assert logging.lastResort is not None
    record = logging.LogRecord("ottla.client", logging.WARNING, "", 0, "no broker can be reached at %s", ("h:1",), None)
    assert logging.lastResort.format(record) == "ottla: no broker can be reached at h:1"


def test_the_help_of_formats_is_found_in_the_plural() -> None:
    assert CliRunner().invoke(cli, ["help", "formats"]).output == CliRunner().invoke(cli, ["help", "format"]).output


def test_a_command_names_settings_as_its_options_are_written() -> None:
    """The library says linger_ms and acks=1, as its arguments are: one text of both is looked for in neither program."""
    for given, text in (
        (("acks=1", "enable.idempotence=true"), "enable.idempotence=true needs acks=all"),
        (("security.protocol=sasl_plaintext",), "sasl.mechanism is not set"),
    ):
        with pytest.raises(KafkaError) as refused:
            cli.main(["produce", "t", *(word for each in given for word in ("-X", each))], standalone_mode=False)
        assert text in with_way_out(refused.value)
