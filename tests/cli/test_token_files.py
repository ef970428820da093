"""Commands that authenticate by a token of OAUTHBEARER, with the properties file of a Java client."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from tests.broker.test_node import properties
from tests.broker.test_oauth import LOGIN, OAUTH, PREFIX
from tests.security.issuer import claims, key_set, signed

from ottla.cli.main import cli
from ottla.cli.output import with_way_out
from ottla.errors import KafkaError
from ottla.runtime.serve import BrokerThread

PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
HANDLER: Final = f"sasl.login.callback.handler.class={PACKAGE}.OAuthBearerLoginCallbackHandler"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """That of tests/interop/test_java_security.py."""
    token = tmp_path / "token.jwt"
    token.write_text(signed(claims()))
    lines = [
        *("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", HANDLER, f"sasl.jaas.config={LOGIN}"),
        *(f"sasl.oauthbearer.jwt.retriever.class={PACKAGE}.FileJwtRetriever", f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}"),
    ]
    path = tmp_path / "client.properties"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_java_clients_file_with_a_token_serves_commands(tmp_path: Path, file: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set())
    own = OAUTH | {f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}
    with BrokerThread(properties(tmp_path / "broker", **own)) as broker:
        servers = f"127.0.0.1:{broker.addresses['GUARDED'][1]}"
        done = CliRunner().invoke(cli, ["topic", "create", "by-token", "-B", servers, "--command-config", str(file)])
        assert done.exit_code == 0, done.output
        assert "created" in done.output
        (tmp_path / "token.jwt").write_text(signed(claims(aud="other")))
        refused = CliRunner().invoke(cli, ["topic", "list", "-B", servers, "--command-config", str(file)]).exception
        assert isinstance(refused, KafkaError)
        assert "; the login was by a token of an issuer, as the file of --command-config" in with_way_out(refused)


def test_a_handler_of_the_users_own_is_refused_with_what_gives_tokens(file: Path) -> None:
    own = ["-X", "sasl.login.callback.handler.class=com.example.Own"]
    done = CliRunner().invoke(cli, ["topic", "list", "--command-config", str(file), *own])
    assert done.exit_code == 2
    said = "have no sasl.login.callback.handler.class: tokens come from sasl_oauth_token or sasl_oauthbearer_token_endpoint_url"
    assert said in " ".join(done.output.split())
