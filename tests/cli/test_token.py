"""``ottla token``, and a client that connects by one."""

from __future__ import annotations

from pathlib import Path

from tests.broker.sasl import GUARDED, LISTENER
from tests.broker.test_node import properties
from tests.cli.test_commands import items, ottla

from ottla.runtime.serve import BrokerThread


def test_a_token_is_created_used_listed_renewed_and_expired(tmp_path: Path) -> None:
    with BrokerThread(properties(tmp_path / "data", **GUARDED, **{"delegation.token.secret.key": "a-secret"})) as broker:
        address = f"127.0.0.1:{broker.addresses[LISTENER][1]}"
        given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.plain.username": "alice"}
        given["sasl.plain.password"] = "alice-secret"
        as_alice = [part for key, value in given.items() for part in ("-X", f"{key}={value}")]
        [made] = items(ottla(address, "token", "create", "--renewer", "User:bob", *as_alice, "--format", "json"))
        assert made["owner"] == "User:alice"
        own = tmp_path / "token.properties"
        own.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config="
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{made["token"]}" password="{made["hmac"]}" tokenauth="true";\n'
        )
        by_token = ["--command-config", str(own)]
        assert ottla(address, "topic", "create", "orders", *by_token).returncode == 0
        refused = ottla(address, "token", "create", *by_token)
        assert (refused.returncode, "and not by a token" in refused.stderr) == (1, True)
        listed = ottla(address, "token", "list", *as_alice, "--format", "json")
        [found] = items(listed)
        assert (found["token"], found["renewers"]) == (made["token"], "User:bob")
        assert made["hmac"] not in listed.stdout
        [renewed] = items(ottla(address, "token", "renew", made["token"], "--hours", "1", *as_alice, "--format", "json"))
        assert renewed["expires"] < found["expires"]
        assert ottla(address, "token", "expire", made["token"], *as_alice).returncode == 0
        gone = ottla(address, "topic", "list", *by_token)
        assert (gone.returncode, gone.stderr.startswith("ottla: SASL_AUTHENTICATION_FAILED")) == (1, True)
        assert ottla(address, "token", "renew", made["token"], *as_alice).returncode == 1
