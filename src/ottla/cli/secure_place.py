"""What ``ottla dev --secure`` has beside its data: an authority, a certificate, a user, and the file by which clients are that user.

The directory is beside that of the data, and has its name with ``-security``. A later start finds the user there; the certificate is made
again by each, and the authority stays.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ottla.cli.output import wrong_call
from ottla.runtime.certificates import AUTHORITY, HOSTS, new_authority, new_certificates

CLIENT: Final = "client.properties"
USER: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
AUTHORITY_DAYS, DAYS = 3650, 365
PASSWORD_BYTES: Final = 18
STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecurePlace:
    """The directory, which is complete when this has been made. UsageError for data of a broker that was started without ``--secure``."""

    def __init__(self, data: str) -> None:
        own = Path(data).absolute()
        self.directory: Final = own.with_name(f"{own.name}-security")
        self.client: Final = self.directory / CLIENT
        if not self.client.exists() and own.is_dir() and any(own.iterdir()):
            text = f"{data} has data that was made without --secure, and no user; name another directory, or delete it"
            raise click.UsageError(text)
        with wrong_call():
            if not (self.directory / AUTHORITY).exists():
                new_authority(self.directory, name="ottla dev", days=AUTHORITY_DAYS)
            [(self._store, _)] = new_certificates(self.directory, ["broker"], hosts=HOSTS, days=DAYS, replaces=True)
        if not self.client.exists():
            self._write_client(secrets.token_urlsafe(PASSWORD_BYTES))

    def _write_client(self, password: str) -> None:
        login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{password}";'
        lines = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / AUTHORITY),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login,
        }
        new = self.client.with_name(f".{CLIENT}")
        descriptor = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("".join(f"{key}={value}\n" for key, value in lines.items()))
        new.rename(self.client)

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

    def add_user(self, properties: Mapping[str, str]) -> None:
        """Adds the user to the metadata of a broker that starts for the first time."""
        from ottla.broker.formatting import format_log_dirs
        from ottla.broker.metadata.log import has_metadata
        from ottla.cli.scram_argument import credential_of
        from ottla.config import BrokerConfig
        from ottla.config.jaas import parse_jaas
        from ottla.config.properties import read_properties
        from ottla.runtime.world import real_world

        password = parse_jaas(read_properties(str(self.client))["sasl.jaas.config"]).option("password")
        config, world = BrokerConfig(properties), real_world()

        async def run() -> None:
            if not await has_metadata(world.disk, config.log_dirs[0]):
                credential = credential_of(f"{MECHANISM}=[name={USER},password={password}]")
                await format_log_dirs(world, config, cluster_id=None, features={}, passes_over=True, credentials=[credential])

        asyncio.run(run())
