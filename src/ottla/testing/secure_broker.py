"""A secured broker, or a cluster: its listeners for clients are SASL_SSL with SCRAM-SHA-512, and an authorizer decides who may do what.

Its certificate, the authority that signed it and the passwords are made for each, and are deleted with it. The user ``admin`` may do
everything; others may do what their ACLs allow. Nodes of a cluster are the same user to each other. It needs ``ottla[security]``.
"""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from ottla.client.options import ClusterOptions
from ottla.controller.scram_users import credential_record
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import UserScramCredentialRecord
from ottla.runtime.certificates import AUTHORITY, HOSTS, check_extra, new_authority, new_certificates
from ottla.runtime.secured_nodes import between_nodes
from ottla.security.scram import SALT_BYTES, ScramMechanism
from ottla.sync import Admin, UserChange
from ottla.testing.served import LOOK_SECONDS
from ottla.testing.thread_nodes import ThreadNodes
from ottla.types import Secret

ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
ITERATIONS: Final = 4096
DAYS: Final = 2
USER_SECONDS_MAX: Final = 30.0
PASSWORD_BYTES: Final = 12
"""Of random passwords."""
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecureBroker(ThreadNodes):
    """Secured nodes in a thread: ``ottla_secure_broker``, ``secure_broker()`` and ``secure_cluster()``.

    Clients need the settings that it has for them: a user's password, and the authority that signed its certificate.
    """

    _protocol: ClassVar[str] = "SASL_SSL"

    def __init__(self, properties: Mapping[str, str], count: int = 1) -> None:
        super().__init__(count, properties)
        self._given = properties
        self._passwords = {ADMIN: secrets.token_urlsafe(PASSWORD_BYTES)}

    def __enter__(self) -> Self:
        check_extra("a secured broker of ottla.testing")
        self._files = tempfile.TemporaryDirectory(prefix="ottla-test-security-")
        try:
            secured = self._security(Path(self._files.name)) | dict(self._given)
            if self._count > 1:
                secured |= between_nodes(
                    self._protocol,
                    authority=Path(self._files.name) / AUTHORITY,
                    password=secrets.token_urlsafe(PASSWORD_BYTES),
                    mechanism=MECHANISM,
                    super_users=secured["super.users"],
                )
            self._properties = secured
            return super().__enter__()
        except BaseException:
            self._files.cleanup()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._files.cleanup()

    def _security(self, directory: Path) -> dict[str, str]:
        new_authority(directory, name="ottla.testing", days=DAYS)
        [(store, _)] = new_certificates(directory, ["broker"], hosts=HOSTS, days=DAYS, replaces=False)
        return {
            "sasl.enabled.mechanisms": MECHANISM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ADMIN}",
        }

    def _credentials(self) -> list[UserScramCredentialRecord]:
        mechanism = ScramMechanism.named(MECHANISM)
        assert mechanism is not None, "it is one of the mechanisms"
        salt = os.urandom(SALT_BYTES)
        salted = mechanism.salted(Secret(self._passwords[ADMIN]), salt, ITERATIONS)
        return [credential_record(ADMIN, mechanism.number, salt, salted, ITERATIONS)]

    # Users

    @property
    def authority(self) -> Path:
        """The PEM file of the authority, which clients trust."""
        return Path(self._files.name) / AUTHORITY

    def user(self, name: str) -> str:
        """Creates a user with a random password, who may do nothing until an ACL allows it; returns the name."""
        if name in self._passwords:
            raise ValueError(f"there is a user {name!r} already")
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        with Admin(self.bootstrap, **self.client_settings) as admin:
            error = admin.alter_users([UserChange(name, MECHANISM, Secret(password))])[name]
        if error is not None:
            raise error
        self._passwords[name] = password
        for node_id in self.node_ids:
            if self.is_running(node_id):
                self._wait_for_user(name, self.bootstrap_of(node_id))
        return name

    def _wait_for_user(self, name: str, address: str) -> None:
        """Waits until the node lets the user in, as nodes learn of it one after the other."""
        deadline = time.monotonic() + USER_SECONDS_MAX
        while True:
            try:
                with Admin(address, **self._login(name)) as admin:
                    admin.describe_cluster()
                return
            except KafkaError as error:
                if error.code != ErrorCode.SASL_AUTHENTICATION_FAILED or time.monotonic() > deadline:
                    raise
            time.sleep(LOOK_SECONDS)

    def password_of(self, user: str = ADMIN) -> str:
        """Returns the password. ValueError for a user that was not made here."""
        if user not in self._passwords:
            raise ValueError(f"there is no user {user!r}; there are {', '.join(self._passwords)}")
        return self._passwords[user]

    # Settings of clients

    @property
    def client_settings(self) -> ClusterOptions:
        return self._login(ADMIN)

    def for_ottla(self, user: str = ADMIN) -> dict[str, Any]:
        """Returns keyword arguments for the clients of ``ottla.aio`` and ``ottla.sync``: ``Producer(**b.for_ottla())``."""
        return {"bootstrap_servers": self.bootstrap, **self._login(user)}

    def _login(self, user: str) -> ClusterOptions:
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": self.password_of(user),
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": str(self.authority),
        }

    def for_confluent_kafka(self, user: str = ADMIN) -> dict[str, str]:
        """Returns settings for the clients of confluent-kafka: ``Producer(b.for_confluent_kafka())``."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.password_of(user),
            "ssl.ca.location": str(self.authority),
        }

    def for_kafka_python(self, user: str = ADMIN) -> dict[str, Any]:
        """Returns keyword arguments for the clients of kafka-python: ``KafkaProducer(**b.for_kafka_python())``."""
        return self._of_python(user) | {"ssl_cafile": str(self.authority)}

    def for_aiokafka(self, user: str = ADMIN) -> dict[str, Any]:
        """Returns keyword arguments for the clients of aiokafka: ``AIOKafkaProducer(**b.for_aiokafka())``."""
        return self._of_python(user) | {"ssl_context": ssl.create_default_context(cafile=str(self.authority))}

    def _of_python(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": self.password_of(user),
        }
