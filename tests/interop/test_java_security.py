"""Apache Kafka's own tools make users, read and write over SASL_SSL, SSL and SASL_PLAINTEXT; subjects are printed as Java does."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.x509 import NameAttribute, RelativeDistinguishedName
from cryptography.x509.oid import NameOID
from tests.broker.certificates import Authority
from tests.broker.sasl import JAAS
from tests.broker.test_oauth import given
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.interop.tools import run
from tests.security.issuer import claims, signed
from tests.security.test_distinguished_name import certificate

from ottla.runtime.serve import BrokerThread
from ottla.security.distinguished_name import subject_of

SCRAM: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="builder";'
PLAIN: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";'
TOOLS: Final = "org.apache.kafka.tools."
TOOL_SECONDS_MAX: Final = 60
WAYS: Final = {
    "GUARDED-PLAIN": ("GUARDED", ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={PLAIN}"]),
    "GUARDED-256": ("GUARDED", ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", f"sasl.jaas.config={SCRAM}"]),
    "BOTH-512": ("BOTH", ["security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={SCRAM}"]),
    "MUTUAL": ("MUTUAL", ["security.protocol=SSL"]),
}


class Secured:
    def __init__(self, directory: Path, bootstrap: str, addresses: dict[str, str], authority: Authority) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.addresses = addresses
        self._stores = ["ssl.truststore.type=PEM", f"ssl.truststore.location={authority.trust}"]
        own = authority.issue("java")
        self._own = ["ssl.keystore.type=PEM", f"ssl.keystore.location={own.store}"]

    def properties(self, way: str) -> tuple[str, Path]:
        """The address, and the file of the client's properties."""
        listener, lines = WAYS[way]
        more = self._stores if listener != "GUARDED" else []
        file = self.directory / f"{way}.properties"
        file.write_text("\n".join([*lines, *more, *(self._own if listener == "MUTUAL" else [])]) + "\n")
        return self.addresses[listener], file


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("java-security")
    authority = Authority(directory / "certificates")
    port, *ports = lasting_ports(4)
    names = ("GUARDED", "BOTH", "MUTUAL")
    properties = {
        "listeners": ",".join([f"PLAINTEXT://127.0.0.1:{port}", *(f"{name}://127.0.0.1:{p}" for name, p in zip(names, ports))]),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT,BOTH:SASL_SSL,MUTUAL:SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.guarded.plain.sasl.jaas.config": JAAS,
        "listener.name.both.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(authority.issue("broker").store),
        "ssl.truststore.location": str(authority.trust),
        "listener.name.mutual.ssl.client.auth": "required",
        "connections.max.reauth.ms": "4000",
        "delegation.token.secret.key": "the-secret-of-all-nodes",
    }
    with BrokerProcess(directory, port=port, **properties) as broker:
        yield Secured(directory, broker.bootstrap, {name: f"127.0.0.1:{p}" for name, p in zip(names, ports)}, authority)


def test_kafka_configs_makes_users_that_each_client_reads_and_writes_as(java: list[str], secured: Secured) -> None:
    def tool(name: str, address: str, *arguments: str, stdin: str | None = None) -> str:
        return run(*java, name, "--bootstrap-server", address, *arguments, stdin=stdin, seconds_max=TOOL_SECONDS_MAX)

    user = ("--entity-type", "users", "--entity-name", "bob")
    added = "SCRAM-SHA-256=[iterations=8192,password=builder],SCRAM-SHA-512=[password=builder]"
    assert "Completed updating" in tool("kafka.admin.ConfigCommand", secured.bootstrap, "--alter", *user, "--add-config", added)
    described = tool("kafka.admin.ConfigCommand", secured.bootstrap, "--describe", *user)
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    for way in WAYS:
        address, file = secured.properties(way)
        topic = way.lower()
        created = tool(f"{TOOLS}TopicCommand", address, "--command-config", str(file), "--create", "--topic", topic)
        assert f"Created topic {topic}" in created
        values = "".join(f"{way}-{number}\n" for number in range(100))
        tool(f"{TOOLS}ConsoleProducer", address, "--topic", topic, "--command-config", str(file), stdin=values)
        consumer = f"{TOOLS}consumer.ConsoleConsumer"
        options = ("--topic", topic, "--from-beginning", "--max-messages", "100", "--command-config", str(file))
        assert tool(consumer, address, *options) == values
    tool("kafka.admin.ConfigCommand", secured.bootstrap, "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    address, file = secured.properties("BOTH-512")
    with pytest.raises(AssertionError, match="authentication failed"):
        tool(f"{TOOLS}TopicCommand", address, "--command-config", str(file), "--list")


def test_kafka_delegation_tokens_makes_tokens_that_its_clients_connect_by(java: list[str], secured: Secured) -> None:
    address, file = secured.properties("GUARDED-PLAIN")

    def tokens(*arguments: str) -> str:
        command = (f"{TOOLS}DelegationTokenCommand", "--bootstrap-server", address, "--command-config", str(file))
        return run(*java, *command, *arguments, seconds_max=TOOL_SECONDS_MAX)

    created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    [made] = [line.split() for line in created.splitlines() if "User:alice" in line]
    token_id, hmac = made[:2]
    assert token_id in tokens("--describe", "--owner-principal", "User:alice")
    assert "Completed renew operation" in tokens("--renew", "--renew-time-period", "3600000", "--hmac", hmac)
    by_token = secured.directory / "by-token.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    by_token.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="{token_id}" password="{hmac}" tokenauth="true";\n'
    )

    def as_owner() -> str:
        command = (f"{TOOLS}TopicCommand", "--bootstrap-server", address, "--command-config", str(by_token))
        return run(*java, *command, "--create", "--if-not-exists", "--topic", "by-token", seconds_max=TOOL_SECONDS_MAX)

    as_owner()
    with pytest.raises(AssertionError, match="not allowed"):
        run(
            *(*java, f"{TOOLS}DelegationTokenCommand", "--bootstrap-server", address, "--command-config", str(by_token), "--describe"),
            seconds_max=TOOL_SECONDS_MAX,
        )
    assert "Completed expire operation" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    with pytest.raises(AssertionError, match="authentication failed"):
        as_owner()


def test_kafkas_client_gets_in_by_a_signed_token_and_not_by_its_own(java: list[str], tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    token, file = tmp_path / "token.jwt", tmp_path / "client.properties"
    token.write_text(signed(claims(scope="a", jti="1")))
    lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER"]
    handler = "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    retriever = "sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.FileJwtRetriever"
    place = f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}"
    allowed = [
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{kind}={where}" for kind, where in (("urls", token.as_uri()), ("files", token))
    ]
    with BrokerThread(given(tmp_path / "broker")) as broker:
        bootstrap = f"127.0.0.1:{broker.addresses['GUARDED'][1]}"

        def create(topic: str) -> str:
            command = (f"{TOOLS}TopicCommand", "--bootstrap-server", bootstrap, "--command-config", str(file), "--create", "--topic", topic)
            return run(java[0], *allowed, *java[1:], *command, seconds_max=TOOL_SECONDS_MAX)

        file.write_text("\n".join([*lines, handler, retriever, place, f"sasl.jaas.config={module};"]) + "\n")
        assert "Created topic signed" in create("signed")
        file.write_text("\n".join([*lines, f'sasl.jaas.config={module} unsecuredLoginStringClaim_sub="alice";']) + "\n")
        with pytest.raises(AssertionError, match="authentication failed"):
            create("unsecured")


SUBJECTS: Final = """
import java.io.*; import java.security.cert.*; import java.util.Base64;
public class Subjects {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String line; (line = lines.readLine()) != null; ) {
            byte[] data = Base64.getDecoder().decode(line.trim());
            X509Certificate found = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(data));
            String name = found.getSubjectX500Principal().getName();
            System.out.println(Base64.getEncoder().encodeToString(name.getBytes("UTF-8")));
        }
    }
}
"""
KINDS: Final = (
    *(NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.LOCALITY_NAME, NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS),
    *(
        NameOID.ORGANIZATIONAL_UNIT_NAME,
        NameOID.USER_ID,
        NameOID.TITLE,
        NameOID.GIVEN_NAME,
        NameOID.EMAIL_ADDRESS,
        NameOID.DOMAIN_COMPONENT,
    ),
)
ASCII_ONLY: Final = (NameOID.EMAIL_ADDRESS, NameOID.DOMAIN_COMPONENT)
CHARACTERS: Final = [*"abcXYZ019 ,+\"\\<>;#='/:-.", "é", "東", "\r", "\t", "\U0001f600"]
SUBJECT_COUNT: Final = 2000


def test_subjects_are_javas_text(tmp_path: Path) -> None:
    rng = random.Random(3)
    cases = [certificate(some_name(rng)) for _ in range(SUBJECT_COUNT)]
    source = tmp_path / "Subjects.java"
    source.write_text(SUBJECTS)
    given = "".join(base64.b64encode(case).decode() + "\n" for case in cases)
    printed = [base64.b64decode(line).decode() for line in run("java", source, stdin=given, seconds_max=TOOL_SECONDS_MAX).split()]
    assert [subject_of(case) for case in cases] == printed


def some_name(rng: random.Random) -> x509.Name:
    sets = []
    for _ in range(rng.randrange(1, 5)):
        values = {}
        for kind in rng.sample(KINDS, rng.choice([1, 1, 1, 2])):
            text = "".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(1, 12)))
            values[kind] = text.encode("ascii", "ignore").decode() or "x" if kind in ASCII_ONLY else text
        sets.append(RelativeDistinguishedName([NameAttribute(kind, value) for kind, value in values.items()]))
    return x509.Name(sets)
