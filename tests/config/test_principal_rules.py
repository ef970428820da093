"""``ssl.principal.mapping.rules``, by the examples of KIP-371, and what is refused."""

from __future__ import annotations

import pytest

from ottla.config.principal_rules import PrincipalRules
from ottla.errors import ErrorCode, KafkaError

SUBJECT = "CN=kafka-server1,OU=KAFKA,O=Example,C=US"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SUBJECT, SUBJECT),
        ("", SUBJECT, SUBJECT),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=kafka,OU=ServiceUsers,O=X", "kafka"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", SUBJECT, "kafka-server1@kafka"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.\\-]*).*$/$1/U , DEFAULT", SUBJECT, "KAFKA-SERVER1"),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/", SUBJECT, None),
        ("RULE:CN=([a-z0-9-]+)/$1/", SUBJECT, None),
        ("RULE:CN=(.*?),.*/\\$1-$1\\//", SUBJECT, "$1-kafka-server1/"),
        ("RULE:^CN=a\\/b$/slash/", "CN=a/b", "slash"),
        ("RULE:.*/no/,RULE:.*/yes/", SUBJECT, "no"),
    ],
)
def test_the_first_rule_that_matches_counts(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalRules.parse(rules).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "length", "is_named"),
    [("DEFAULT", 1000, True), ("DEFAULT", 1001, False), ("RULE:^CN=(.*)$/$1/", 400, True), ("RULE:^CN=(.*)$/$1/,DEFAULT", 401, False)],
)
def test_a_subject_that_is_too_long_has_no_name(rules: str, length: int, is_named: bool) -> None:
    """Three ``.*`` in a pattern held a broker for half a minute with a subject of 1,000 characters."""
    assert (PrincipalRules.parse(rules).name_of("CN=".ljust(length, "x")) is not None) == is_named


@pytest.mark.parametrize(
    "rules",
    ["DEFALT", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "RULE:a/$1/", "RULE:(?<n>a)/b/", "RULE:\\p{L}/b/", "RULE:[a&&[b]]/b/",
        "DEFAULT,,DEFAULT",
     "RULE:\\Qa\\E/b/", "DEFAULT RULE:a/b/"],
)  # fmt: skip
def test_malformed_rules_and_rules_of_javas_regex_dialect_are_refused(rules: str) -> None:
    with pytest.raises(KafkaError) as caught:
        PrincipalRules.parse(rules)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "ssl.principal.mapping.rules" in caught.value.message
