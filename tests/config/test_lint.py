"""What is said about a file before a broker is started with it."""

from __future__ import annotations

from tests.config.test_sources import COMBINED_NODE

from ottla.config import parse_properties
from ottla.config.lint import Finding, Severity, lint


def test_unknown_keys_and_illegal_values_are_errors_and_keys_without_effect_are_noted() -> None:
    given = {"num.partition": "1", "num.partitions": "none", "message.max.bytes": "1", "background.threads": "10", "no.such.thing.x": "1"}
    mistyped, illegal, idle, unheard = lint(given)
    assert mistyped == Finding("num.partition", Severity.ERROR, "unknown; did you mean num.partitions?")
    assert (illegal.name, illegal.severity) == ("num.partitions", Severity.ERROR)
    assert (idle.name, idle.severity) == ("background.threads", Severity.NOTE)
    assert unheard.severity is Severity.ERROR


def test_a_file_of_kafkas_has_no_errors() -> None:
    assert {finding.severity for finding in lint(parse_properties(COMBINED_NODE))} == {Severity.NOTE}
