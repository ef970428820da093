"""SASL OAUTHBEARER: tokens, their keys and their assertions."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import ConfigKey, int32, int64, password, string, strings
from ottla.config.keys.reasons import SECURITY

KEYS: Final[tuple[ConfigKey, ...]] = (
    string("sasl.oauthbearer.jwks.endpoint.url", None, "Where the keys that sign tokens are published."),
    int64("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3600000, "How often the published keys are fetched."),
    int64(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "The first pause before the keys are fetched again.",
    ),
    int64(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10000,
        "The longest pause before the keys are fetched again.",
    ),
    string("sasl.oauthbearer.token.endpoint.url", None, "Where a node gets tokens of its own: https: or file:."),
    strings("sasl.oauthbearer.expected.audience", [], "Audiences of which a token must name one."),
    string("sasl.oauthbearer.expected.issuer", None, "The issuer that a token must name."),
    int32("sasl.oauthbearer.clock.skew.seconds", 30, "How far the clocks of issuer and broker may differ."),
    string("sasl.oauthbearer.scope", None, "The scope that a token is asked for with."),
    string("sasl.oauthbearer.scope.claim.name", "scope", "The claim that holds a token's scope."),
    string("sasl.oauthbearer.sub.claim.name", "sub", "The claim that holds a token's subject."),
    string("sasl.oauthbearer.client.credentials.client.id", None, "The client id with which tokens are fetched."),
    password(
        "sasl.oauthbearer.client.credentials.client.secret",
        None,
        "The client secret with which tokens are fetched.",
    ),
    string(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        "The algorithm that signs an assertion.",
        choices=("ES256", "RS256"),
        ignores_case=True,
        without_effect=SECURITY,
    ),
)
