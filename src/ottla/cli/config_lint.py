"""``ottla config lint``: all that is wrong in the files of a cluster's nodes, at once."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.output import format_option, print_rows
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.config.lint import Finding


@click.command()
@click.argument("files", type=click.Path(exists=True, dir_okay=False), nargs=-1, required=True, metavar="FILE...")
@format_option
def lint(files: tuple[str, ...], output: str) -> None:
    """Report what is wrong in each server.properties FILE.

    Exit code 1 for unknown keys, and for values with which no broker starts. Files that they name are not checked, but certificates that
    have expired are reported, where they can be read.

    Each finding has the line of its key; one about a default has none.

    Also reported are keys without effect, and values with which a broker starts and will not do well.
    """
    from ottla.config.lint import Severity

    found = [(file, line, finding) for file in files for line, finding in _findings(file)]
    if not found and output == "text":
        click.echo("nothing to report")
        return
    rows = [(file, line, each.name, each.severity.value, each.text) for file, line, each in found]
    columns = ("file", "line", "name", "severity", "text")
    is_one = len(files) == 1 and output == "text"
    print_rows(output, "config lint", columns[is_one:], [row[is_one:] for row in rows])
    if any(each.severity is Severity.ERROR for _, _, each in found):
        sys.exit(1)


def _findings(file: str) -> list[tuple[int | None, Finding]]:
    """Returns all findings of the file, each with the line of its key."""
    from ottla.broker.requests.expired_certificates import expired_by_key
    from ottla.broker.start_check import all_problems
    from ottla.config import BrokerConfig
    from ottla.config.lint import Finding, Severity, readable, repeated
    from ottla.config.lint import lint as findings_of
    from ottla.config.properties import numbered_pairs

    pairs = list(numbered_pairs(Path(file).read_bytes().decode("latin-1")))
    given = {name: value for _, name, value in pairs}
    lines = {name: line for line, name, _ in pairs}
    findings = [*findings_of(given), *repeated(pairs)]
    legal, unread, _ = readable(given)
    with contextlib.suppress(KafkaError):  # which is a finding already
        for error in all_problems(legal, unread):
            named = next((word for word in re.split(r"[=: ]", error.message) if word in given), "listeners")
            findings.append(Finding(named, Severity.ERROR, error.message))
        for name, text in expired_by_key(BrokerConfig(legal), time.time_ns() // 1_000_000).items():
            findings.append(Finding(name, Severity.WARNING, text))
    return [(lines.get(each.name), each) for each in findings]
