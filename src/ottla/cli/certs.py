"""``ottla certs``: a private authority, and what it signs for nodes and clients, as PEM files that listeners and clients take.

For tests and small clusters: the authority's key is kept beside the rest, unencrypted, in files of mode 0600. It needs ``ottla[security]``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.output import format_option, print_rows, wrong_call
from ottla.cli.values import Directory
from ottla.runtime.certificates import AUTHORITY, HOSTS, check_extra, new_authority, new_certificates

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

COLUMNS: Final = ("file", "subject", "hosts", "until")
DAYS_MAX: Final = 36500


@click.group()
def certs() -> None:
    """Make a private authority, and certificates for nodes and clients."""


@certs.command()
@click.argument("directory", type=Directory(path_type=Path))
@click.option("--name", default="ottla authority", show_default=True, help="Its common name.")
@click.option("--days", type=click.IntRange(1, DAYS_MAX), default=3650, show_default=True, help="How long it is good.")
@format_option
def authority(directory: Path, name: str, days: int, output: str) -> None:
    """Make an authority in DIRECTORY.

    Its files are authority.pem, which all trust, and authority.key.
    """
    check_extra("ottla certs")
    with wrong_call():
        made = new_authority(directory, name=name, days=days)
    _show(output, "certs authority", [(directory / AUTHORITY, made, ())])


@certs.command()
@click.argument("directory", type=Directory(exists=True, path_type=Path))
@click.argument("names", nargs=-1, required=True)
@click.option("--host", "hosts", multiple=True, default=HOSTS, show_default=True, help="A name or an address by which clients reach it.")
@click.option("--days", type=click.IntRange(1, DAYS_MAX), default=365, show_default=True, help="How long it is good.")
@click.option("--replace", is_flag=True, help="Replace the file, whose broker then reads it again when its key is set again.")
@format_option
def issue(directory: Path, names: tuple[str, ...], hosts: tuple[str, ...], days: int, replace: bool, output: str) -> None:
    """Issue a key and a certificate to each of NAMES.

    The authority in DIRECTORY signs it. The file NAME.pem is for ssl.keystore.location.
    """
    check_extra("ottla certs")
    with wrong_call():
        made = new_certificates(directory, names, hosts=hosts, days=days, replaces=replace)
    _show(output, "certs issue", [(path, certificate, hosts) for path, certificate in made])


def _show(output: str, command: str, made: list[tuple[Path, Certificate, tuple[str, ...]]]) -> None:
    rows = [
        (str(path), one.subject.rfc4514_string(), ",".join(hosts), one.not_valid_after_utc.isoformat(timespec="seconds"))
        for path, one, hosts in made
    ]
    print_rows(output, command, COLUMNS, rows)
