"""What ``--secure`` of ``ottla dev`` and ``ottla cluster start`` needs: an authority, a certificate, a user, and a file for clients.

Of ``ottla dev`` the directory is beside that of the data, and has its name with ``-security``; a cluster's is in the cluster's own. A
later start finds the user there; the certificate is made again by each, and the authority stays.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.nodes.place import CLIENT_FILE, SHARED_FILE
from ottla.cli.nodes.plan import SECURED
from ottla.cli.output import wrong_call
from ottla.runtime.certificates import AUTHORITY, HOSTS, new_authority, new_certificates
from ottla.runtime.secured_nodes import between_nodes

if TYPE_CHECKING:
    from ottla.messages.metadata_records import UserScramCredentialRecord

USER: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
AUTHORITY_DAYS, DAYS = 3650, 365
PASSWORD_BYTES: Final = 18
STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecurePlace:
    """The directory, which is complete when this has been made."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.directory: Final = directory
        self.client: Final = self.directory / CLIENT_FILE
        with wrong_call():
            if not (self.directory / AUTHORITY).exists():
                new_authority(self.directory, name=owner, days=AUTHORITY_DAYS)
            [(self._store, _)] = new_certificates(self.directory, ["broker"], hosts=HOSTS, days=DAYS, replaces=True)
        if not self.client.exists():
            self._write_client(secrets.token_urlsafe(PASSWORD_BYTES))

    @classmethod
    def beside(cls, data: str) -> SecurePlace:
        """Makes the place beside that of the data. UsageError for data of a broker that was started without ``--secure``."""
        own, directory = Path(data).absolute(), _beside(data)
        if not (directory / CLIENT_FILE).exists() and own.is_dir() and any(own.iterdir()):
            text = f"{data} has data, and {directory / CLIENT_FILE} with the password of its user is not there"
            ways = "put that file back, name another directory, or delete this one"
            raise click.UsageError(f"{text}: the data was made without --secure, or the file was deleted; {ways}")
        return cls(directory, "ottla dev")

    def _write_client(self, password: str) -> None:
        login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{password}";'
        lines = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / AUTHORITY),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login,
        }
        self._write(CLIENT_FILE, lines)

    def _write(self, name: str, lines: Mapping[str, str]) -> None:
        new = self.directory / f".{name}"
        descriptor = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("".join(f"{key}={value}\n" for key, value in lines.items()))
        new.rename(self.directory / name)

    def properties(self, port: int) -> dict[str, str]:
        """Returns the broker's properties: one SASL_SSL listener with passwords, and ACLs, which do not bind the user of the file."""
        return {
            "listeners": f"SASL_SSL://127.0.0.1:{port}",
            "sasl.enabled.mechanisms": MECHANISM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._store),
            "authorizer.class.name": STANDARD,
            "super.users": f"User:{USER}",
        }

    def write_nodes(self, *, is_alone: bool) -> None:
        """Writes what the nodes of a cluster share, with another password each time: they all start from the same file."""
        own = self.properties(0)
        del own["listeners"]
        if not is_alone:
            own |= between_nodes(
                SECURED,
                authority=self.directory / AUTHORITY,
                password=secrets.token_urlsafe(PASSWORD_BYTES),
                mechanism=MECHANISM,
                super_users=own["super.users"],
            )
        self._write(SHARED_FILE, own)

    def credential(self) -> UserScramCredentialRecord:
        """Returns the record of the user, by the password in the file."""
        from ottla.cli.scram_argument import credential_of
        from ottla.config.jaas import parse_jaas
        from ottla.config.properties import read_properties

        password = parse_jaas(read_properties(str(self.client))["sasl.jaas.config"]).option("password")
        return credential_of(f"{MECHANISM}=[name={USER},password={password}]")

    def add_user(self, properties: Mapping[str, str]) -> None:
        """Adds the user to the metadata of a broker that starts for the first time."""
        from ottla.broker.formatting import format_log_dirs
        from ottla.broker.metadata.log import has_metadata
        from ottla.config import BrokerConfig
        from ottla.runtime.world import real_world

        config, world = BrokerConfig(properties), real_world()

        async def run() -> None:
            if not await has_metadata(world.disk, config.log_dirs[0]):
                await format_log_dirs(world, config, cluster_id=None, features={}, passes_over=True, credentials=[self.credential()])

        asyncio.run(run())


def secured_before(data: str) -> Path | None:
    """Returns the directory with the users' file of an earlier start with ``--secure``; None where there is none."""
    directory = _beside(data)
    return directory if (directory / CLIENT_FILE).exists() else None


def _beside(data: str) -> Path:
    own = Path(data).absolute()
    return own.with_name(f"{own.name}-security")
