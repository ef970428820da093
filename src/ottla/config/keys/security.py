"""Who may connect: SASL, delegation tokens."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import ConfigKey, Scope, class_name, int32, int64, password, string, strings
from ottla.config.jaas import parse_jaas
from ottla.config.keys.reasons import JAVA

OAUTH_VALIDATORS: Final = ("OAuthBearerValidatorCallbackHandler", "secured.OAuthBearerValidatorCallbackHandler")

KEYS: Final[tuple[ConfigKey, ...]] = (
    class_name(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "A Java class that builds the principal of a connection.",
        scope=Scope.PER_BROKER,
        without_effect=JAVA,
        harmless=("", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
    ),
    int64(
        "connections.max.reauth.ms",
        0,
        "How long a SASL session lasts before the client has to authenticate again; 0 for no limit.",
    ),
    password(
        "delegation.token.secret.key",
        None,
        "The secret that signs delegation tokens, the same on every node; without it there are none.",
    ),
    int64("delegation.token.max.lifetime.ms", 604800000, "How long a delegation token can be renewed at most.", low=1),
    int64("delegation.token.expiry.time.ms", 86400000, "How long a delegation token is good without being renewed.", low=1),
    int64("delegation.token.expiry.check.interval.ms", 3600000, "How often expired delegation tokens are removed.", low=1),
    strings(
        "sasl.enabled.mechanisms",
        ["GSSAPI"],
        "SASL mechanisms of clients: some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. The default, Kafka's, is not supported.",
        scope=Scope.PER_BROKER,
    ),
    string("sasl.mechanism.inter.broker.protocol", "GSSAPI", "SASL mechanism between brokers.", scope=Scope.PER_BROKER),
    string("sasl.mechanism.controller.protocol", "GSSAPI", "SASL mechanism towards controllers."),
    password("sasl.jaas.config", None, "A login module and its options, in JAAS format.", scope=Scope.PER_BROKER, check=parse_jaas),
    class_name("sasl.client.callback.handler.class", None, "The callback handler of SASL clients.", without_effect=JAVA, harmless=("",)),
    class_name(
        "sasl.server.callback.handler.class",
        None,
        "The callback handler of SASL servers. That of Kafka for signed tokens of OAUTHBEARER is what there is; no class is loaded.",
        without_effect=JAVA,
        harmless=("", *(f"org.apache.kafka.common.security.oauthbearer.{name}" for name in OAUTH_VALIDATORS)),
    ),
    class_name("sasl.login.callback.handler.class", None, "The callback handler of logins.", without_effect=JAVA, harmless=("",)),
    class_name("sasl.login.class", None, "A Java class that logs in.", without_effect=JAVA, harmless=("",)),
    int32(
        "sasl.server.max.receive.size",
        524288,
        "The largest SASL message accepted before a client is authenticated.",
    ),
)
