"""Changelogs that someone deletes while their query runs: they are made again, compacted, and the query says what they lack."""

from types import SimpleNamespace

import pytest
from tests.spark.conftest import Topics

from ottla.errors import ErrorCode, KafkaError
from ottla.spark import changelogs as module
from ottla.spark.changelogs import CONFIGS, LOOK_S, Changelogs
from ottla.spark.compacted_topics import ensure_compacted
from ottla.spark.lookup import Lookup
from ottla.spark.losses import note, taken
from ottla.sync import Admin

NAME = "app-seen-changelog"
DELETED = f"changelog {NAME} was deleted while the query ran, and has only what changes from batch {{}} on"


def test_a_changelog_that_is_deleted_is_made_again_and_readers_are_told_what_it_lacks(topics: Topics) -> None:
    now_s = 0.0
    options = {"kafka.bootstrap.servers": topics.bootstrap}
    changelogs = Changelogs(options, lambda: now_s)
    assert changelogs.ensure(NAME, 0) is None
    now_s += LOOK_S
    assert changelogs.ensure(NAME, 1) is None

    topics.delete(NAME)
    assert changelogs.ensure(NAME, 2) is None  # it is not looked up with each batch
    now_s += LOOK_S
    assert changelogs.ensure(NAME, 3) == DELETED.format(3)
    topics.delete(NAME)
    ensure_compacted(Lookup(options), NAME, CONFIGS)  # by someone else
    now_s += LOOK_S
    assert changelogs.ensure(NAME, 9) == DELETED.format(9)
    assert changelogs.ensure(NAME, 10) is None
    with Admin(topics.bootstrap) as admin:
        assert admin.describe_config_of_topics([NAME], "cleanup.policy") == {NAME: "compact"}

    topics.delete(NAME)
    topics.create(name=NAME)  # as a broker makes it that creates topics by itself
    now_s += LOOK_S
    with pytest.raises(KafkaError, match="needs compact to keep each key") as refused:
        changelogs.ensure(NAME, 11)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


A, B, ZEROS = b"a" * 16, b"b" * 16, bytes(16)


@pytest.mark.parametrize(
    ("found", "told_in"),
    [
        ([[None, None], [A], [A]], []),  # the broker that is asked does not know the topic yet
        ([[A], [None, None], [B], [B]], [1]),
        ([[A], [None, A], [A]], []),  # another broker knew it
        ([[ZEROS], [None, ZEROS], [ZEROS]], [1]),  # from brokers without topic ids
    ],
)
def test_a_deletion_is_told_once_whatever_brokers_know_meanwhile(
    found: list[list[bytes | None]], told_in: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``found``: what brokers answer in each batch, in turn."""
    answers: list[bytes | None] = []
    monkeypatch.setattr(module, "Lookup", lambda settings: None)
    monkeypatch.setattr(module, "ensure_compacted", lambda *arguments: None)
    monkeypatch.setattr(module, "id_of", lambda lookup, topic: answers.pop(0))
    now_s = 0.0
    changelogs, told = Changelogs({}, lambda: now_s), []
    for number, answered in enumerate(found):
        answers += answered
        if changelogs.ensure(NAME, number) is not None:
            told.append(number)
        assert not answers
        now_s += LOOK_S
    assert told == told_in


def test_a_changelog_that_is_not_there_when_a_query_goes_on_begins_there(topics: Topics) -> None:
    changelogs = Changelogs({"kafka.bootstrap.servers": topics.bootstrap})
    said = "changelog app-new-changelog did not exist, and has only what changes from batch 7 on"
    assert changelogs.ensure("app-new-changelog", 7) == said
    assert Changelogs({"kafka.bootstrap.servers": topics.bootstrap}).ensure("app-new-changelog", 8) is None


def test_what_readers_have_to_know_is_a_line_of_the_querys_runner() -> None:
    session = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda name: "query 1"))
    note(session, None)
    note(session, DELETED)
    assert taken("query 1") == [DELETED]
    assert taken("query 1") == []
