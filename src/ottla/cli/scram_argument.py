"""``SCRAM-SHA-256=[name=alice,iterations=8192,password=...]``: a user as kafka-storage's ``--add-scram`` has it (KIP-900).

In place of ``password=`` there may be ``password-file=PATH``, whose first line is the password, or ``saltedpassword=`` and ``salt=`` in
base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Final

import click

from ottla.types import Secret

if TYPE_CHECKING:
    from ottla.messages.metadata_records import UserScramCredentialRecord

_FORM: Final = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]", re.DOTALL)
_NAMES: Final = ("name", "password", "password-file", "saltedpassword", "salt", "iterations")
DEFAULT_ITERATIONS: Final = 4096


def credential_of(text: str) -> UserScramCredentialRecord:
    """Returns the credential, with a random salt where none is given. UsageError, which does not show the text, when it cannot be read."""
    from ottla.controller.scram_users import ITERATIONS_MAX, ITERATIONS_MIN, credential_record
    from ottla.security.scram import SALT_BYTES, ScramMechanism

    found = _FORM.fullmatch(text)
    if found is None:
        raise _refused("is not of the form SCRAM-SHA-256=[name=NAME,password-file=FILE]")
    given: dict[str, str] = {}
    for part in found[2].split(","):
        name, _, value = part.partition("=")
        if name.strip() not in _NAMES or name.strip() in given:
            raise _refused(f"has a part that is not one of {', '.join(_NAMES)}, or has one twice")
        given[name.strip()] = value.strip().strip("\"'")
    if not given.get("name"):
        raise _refused("has no name")
    if sum(name in given for name in ("password", "password-file", "saltedpassword")) != 1:
        raise _refused("has not exactly one of password, password-file and saltedpassword")
    iterations_text = given.get("iterations", str(DEFAULT_ITERATIONS))
    if not iterations_text.isdigit() or not ITERATIONS_MIN <= int(iterations_text[:9]) <= ITERATIONS_MAX:
        raise _refused(f"has iterations that are not from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    iterations, mechanism = int(iterations_text), ScramMechanism.named(found[1])
    assert mechanism is not None, "the form has these names alone"
    try:
        salt = base64.b64decode(given["salt"], validate=True) if "salt" in given else secrets.token_bytes(SALT_BYTES)
        if "saltedpassword" in given:
            if "salt" not in given:
                raise _refused("has a saltedpassword without its salt")
            salted = base64.b64decode(given["saltedpassword"], validate=True)
            if len(salted) != (length := hashlib.new(mechanism.hash_name).digest_size):
                raise _refused(f"has a saltedpassword that has not the {length} bytes of its mechanism")
        else:
            salted = mechanism.salted(_password(given), salt, iterations)
        return credential_record(given["name"], mechanism.number, salt, salted, iterations)
    except binascii.Error:
        raise _refused("has a salt or a saltedpassword that is not base64") from None


def _password(given: dict[str, str]) -> Secret:
    if "password-file" not in given:
        return Secret(given["password"])
    try:
        with open(given["password-file"], encoding="utf-8") as file:
            password = file.readline().rstrip("\r\n")
    except OSError as error:
        raise _refused(f"has a password-file that cannot be read: {error.strerror}") from None
    if not password:
        raise _refused("has a password-file whose first line is empty")
    return Secret(password)


def _refused(why: str) -> click.UsageError:
    return click.UsageError(f"--add-scram {why}")
