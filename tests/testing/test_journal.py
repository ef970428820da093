"""What is logged while test brokers run: kept, at the level of each logger, and given back to structlog afterwards."""

from __future__ import annotations

import structlog

from ottla.loggers import get_logger, set_levels
from ottla.testing.journal import LINES_MAX, Journal

log = get_logger("ottla.broker.of_the_journals_test")


def test_events_are_kept_with_their_values_from_a_position_on() -> None:
    journal = Journal()
    with journal.kept():
        log.info("first")
        position = journal.position
        log.warning("second", topic="t", count=2)
        log.debug("below the level")
    assert "[warning] second topic='t' count=2 (broker.of_the_journals_test)\n" in journal.since(position)
    assert journal.since(position).count("\n") == 1
    assert journal.since(0).count("\n") == 2


def test_a_level_that_was_set_holds_here_as_well() -> None:
    journal = Journal()
    set_levels([("ottla.broker.of_the_journals_test", "ERROR")])
    try:
        with journal.kept():
            log.warning("below the level")
    finally:
        set_levels([("ottla.broker.of_the_journals_test", None)])
    assert journal.position == 0


def test_an_error_has_its_traceback() -> None:
    journal = Journal()
    with journal.kept():
        log.error("failed", exc_info=ValueError("the reason"))
    assert "ValueError: the reason\n" in journal.since(0)


def test_the_last_one_that_stops_gives_events_back() -> None:
    journal = Journal()
    with journal.kept():
        with journal.kept():
            pass
        log.info("still kept")
    with structlog.testing.capture_logs() as captured:
        log.info("given back")
    assert [entry["event"] for entry in captured] == ["given back"]
    assert journal.position == 1


def test_old_lines_are_dropped_and_positions_stay() -> None:
    journal = Journal()
    with journal.kept():
        for number in range(LINES_MAX + 10):
            log.info(f"event-{number}")
    assert journal.position == LINES_MAX + 10
    assert journal.since(0).count("\n") == LINES_MAX
    assert journal.since(journal.position - 1).count("\n") == 1
