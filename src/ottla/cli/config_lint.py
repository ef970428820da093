"""``ottla config lint``: all that is wrong in the files of a cluster's nodes, at once."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from ottla.cli.output import format_option, print_rows
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.config.lint import Finding


@click.command()
@click.argument("files", type=click.Path(exists=True, dir_okay=False), nargs=-1, required=True, metavar="FILE...")
@format_option
def lint(files: tuple[str, ...], output: str) -> None:
    """Report what is wrong in each server.properties FILE.

    Exit code 1 for unknown keys, and for values with which no broker starts. Of stores (ssl.keystore.location) is said what a start would
    refuse, and which certificates have expired; on another machine than the node's, only that they cannot be read here.

    Several files belong to the nodes of one cluster, and are compared: the voters, ids and addresses, and what has to be the same in all.

    Each finding has the line of its key; one about a default has none.

    Also reported are keys without effect, and values with which a broker starts and will not do well.
    """
    from ottla.config.lint import Severity

    found = _compared({file: _findings(file) for file in files})
    if not found and output == "text":
        click.echo("nothing to report")
        return
    rows = [(file, line, each.name, each.severity.value, each.text) for file, line, each in found]
    columns = ("file", "line", "name", "severity", "text")
    is_one = len(files) == 1 and output == "text"
    print_rows(output, "config lint", columns[is_one:], [row[is_one:] for row in rows])
    if any(each.severity is Severity.ERROR for _, _, each in found):
        sys.exit(1)


class _Read(Struct, frozen=True):
    """A file: the line of each key, its findings, and its configuration as far as it can be read."""

    lines: Mapping[str, int]
    findings: list[Finding]
    config: BrokerConfig


def _compared(read: Mapping[str, _Read]) -> list[tuple[str, int | None, Finding]]:
    """Returns all findings, file by file, each with the line of its key."""
    from ottla.config.lint_nodes import compare

    for file, finding in compare({file: found.config for file, found in read.items()}):
        read[file].findings.append(finding)
    return [(file, found.lines.get(each.name), each) for file, found in read.items() for each in found.findings]


def _findings(file: str) -> _Read:
    """Returns what is wrong in the file alone."""
    from ottla.broker.requests.expired_certificates import not_valid_by_key
    from ottla.broker.start_check import all_problems
    from ottla.cli.lint_places import places
    from ottla.config import BrokerConfig
    from ottla.config.lint import Finding, Severity, readable, repeated
    from ottla.config.lint import lint as findings_of
    from ottla.config.properties import numbered_pairs
    from ottla.runtime.world import real_world

    pairs = list(numbered_pairs(Path(file).read_bytes().decode("latin-1")))
    given = {name: value for _, name, value in pairs}
    lines = {name: line for line, name, _ in pairs}
    findings = [*findings_of(given), *repeated(pairs)]
    legal, unread, _ = readable(given)
    config = BrokerConfig(legal)
    with contextlib.suppress(KafkaError):  # which is a finding already
        for error in all_problems(legal, unread):
            named = next((word for word in re.split(r"[=: ]", error.message) if word in given), "listeners")
            findings.append(Finding(named, Severity.ERROR, error.message))
        findings += places(config, real_world())
        for name, text in not_valid_by_key(config, time.time_ns() // 1_000_000).items():
            findings.append(Finding(name, Severity.WARNING, text))
    return _Read(lines, findings, config)
