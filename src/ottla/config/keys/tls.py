"""TLS: keys, certificates, protocols."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import ConfigKey, Scope, boolean, class_name, password, string, strings
from ottla.config.keys.reasons import JAVA
from ottla.config.principal_rules import PrincipalRules

KEYS: Final[tuple[ConfigKey, ...]] = (
    string(
        "ssl.client.auth",
        "none",
        "Whether clients present a certificate: required, requested or none.",
        choices=("required", "requested", "none"),
        scope=Scope.PER_BROKER,
    ),
    string("ssl.keystore.type", "JKS", "Form of the key store: JKS, PKCS12 or PEM.", scope=Scope.PER_BROKER),
    string("ssl.keystore.location", None, "The file of the key store.", scope=Scope.PER_BROKER),
    password("ssl.keystore.password", None, "The password of the key store.", scope=Scope.PER_BROKER),
    password("ssl.keystore.key", None, "The private key, in PEM form.", scope=Scope.PER_BROKER),
    password("ssl.keystore.certificate.chain", None, "The certificate and its chain, in PEM form.", scope=Scope.PER_BROKER),
    password("ssl.key.password", None, "The password of the private key.", scope=Scope.PER_BROKER),
    string("ssl.truststore.type", "JKS", "Form of the trust store: JKS, PKCS12 or PEM.", scope=Scope.PER_BROKER),
    string("ssl.truststore.location", None, "The file of the trust store.", scope=Scope.PER_BROKER),
    password("ssl.truststore.password", None, "The password of the trust store.", scope=Scope.PER_BROKER),
    password("ssl.truststore.certificates", None, "Certificates that are trusted, in PEM form.", scope=Scope.PER_BROKER),
    strings("ssl.enabled.protocols", ["TLSv1.2", "TLSv1.3"], "TLS versions that are accepted.", scope=Scope.PER_BROKER),
    string("ssl.protocol", "TLSv1.3", "The TLS version that is offered.", scope=Scope.PER_BROKER),
    strings("ssl.cipher.suites", [], "Cipher suites that are accepted; the library's own when empty.", scope=Scope.PER_BROKER),
    string(
        "ssl.endpoint.identification.algorithm", "https", "How a server's name is checked; empty for not at all.", scope=Scope.PER_BROKER
    ),
    string("ssl.principal.mapping.rules", "DEFAULT", "Rules that make principals of certificates' names.", check=PrincipalRules.parse),
    boolean("ssl.allow.dn.changes", False, "Whether a new certificate may have another distinguished name."),
    boolean("ssl.allow.san.changes", False, "Whether a new certificate may lack alternative names of the old one."),
    string("ssl.provider", None, "The Java provider of TLS.", scope=Scope.PER_BROKER, without_effect=JAVA, harmless=("",)),
    class_name(
        "ssl.engine.factory.class",
        None,
        "A class that makes TLS engines.",
        scope=Scope.PER_BROKER,
        without_effect=JAVA,
        harmless=("",),
    ),
)
