"""``ottla token``, and a client that connects by one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from tests.broker.sasl import GUARDED, LISTENER
from tests.broker.test_node import properties

from ottla.cli.main import cli
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread


def ottla(address: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env={"OTTLA_BOOTSTRAP": address})


def items(result: Result) -> Any:
    """The broker of this process logs to the same place."""
    assert result.exit_code == 0, result.output
    [begins] = [found.start() for found in re.finditer(r"^\{", result.stdout, re.MULTILINE)]
    return json.JSONDecoder().raw_decode(result.stdout, begins)[0]["items"]


def code_of(result: Result) -> int:
    assert isinstance(result.exception, KafkaError)
    return result.exception.code


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
        assert ottla(address, "topic", "create", "orders", *by_token).exit_code == 0
        refused = ottla(address, "token", "create", *by_token)
        assert code_of(refused) == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert "and not by a token" in str(refused.exception)
        listed = ottla(address, "token", "list", *as_alice, "--format", "json")
        [found] = items(listed)
        assert (found["token"], found["renewers"]) == (made["token"], "User:bob")
        assert made["hmac"] not in listed.stdout
        [renewed] = items(ottla(address, "token", "renew", made["token"], "--hours", "1", *as_alice, "--format", "json"))
        assert renewed["expires"] < found["expires"]
        assert ottla(address, "token", "expire", made["token"], *as_alice).exit_code == 1
        assert ottla(address, "topic", "list", *by_token).exit_code == 0
        assert ottla(address, "token", "expire", made["token"], "--yes", *as_alice).exit_code == 0
        gone = ottla(address, "topic", "list", *by_token)
        assert code_of(gone) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert code_of(ottla(address, "token", "renew", made["token"], *as_alice)) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
