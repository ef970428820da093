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
        ("RULE:^.*$/no/,RULE:^.*$/yes/", SUBJECT, "no"),
    ],
)
def test_the_first_rule_that_matches_counts(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalRules.parse(rules).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("RULE:CN=(.*?),OU=.*?/$1/", "CN=alice,OU=Sales,O=X", "aliceSales,O=X"),
        ("RULE:CN=(.*?),OU=.*?/$1/U", "CN=alice,OU=Sales,O=X", "ALICESALES,O=X"),
        ("RULE:(.*)/user-$1/", "CN=a", "user-CN=auser-"),
        ("RULE:CN=(.*?)(,.*)?/$1-/", "CN=ab,O=X", "-ab,O=X"),
        ("RULE:[^,]*,?(.*?)/$1-/", "CN=a,O=X", "---"),
        ("RULE:x*?/-/", "xx", "-x-x-"),
        ("RULE:CN=(.*?),(.*)/$2$10/", "CN=a,O=X", "O=Xa0"),
    ],
)
def test_all_that_a_pattern_finds_is_replaced_as_in_java(rules: str, subject: str, name: str) -> None:
    """Each name is what ``SslPrincipalMapper`` of Kafka 4.3.0 said."""
    assert PrincipalRules.parse(rules).name_of(subject) == name


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_a_dot_fits_no_character_that_ends_a_line_in_java(end: str) -> None:
    """A name with such a character got the rights of a rule that in Kafka is not for it."""
    subject = f"CN=a{end}b,O=X"
    assert PrincipalRules.parse("RULE:^CN=(.*),O=X$/$1/").name_of(subject) is None
    assert PrincipalRules.parse("RULE:^CN=([^,.]*),O=X$/$1/").name_of(subject) == f"a{end}b"
    assert PrincipalRules.parse("RULE:(?s)^CN=(.*),O=X$/$1/").name_of(subject) == f"a{end}b"


def test_escaped_dots_and_dots_in_classes_are_dots() -> None:
    rules = PrincipalRules.parse("RULE:^CN=a\\.b[.]c[^\\].]d.$/x/")
    assert (rules.name_of("CN=a.b.cxd."), rules.name_of("CN=axb.cxd."), rules.name_of("CN=a.bxcxd.")) == ("x", None, None)


@pytest.mark.parametrize(("length", "is_named"), [(100, True), (101, False)])
def test_a_long_rest_behind_a_lazy_pattern_has_no_name(length: int, is_named: bool) -> None:
    """To look for a next part at each place of 300 characters took ten seconds."""
    name = PrincipalRules.parse("RULE:(.*?)x(.*?)y.*?/$2/").name_of("xy" + "x" * length)
    assert name == ("x" * length if is_named else None)


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
     "RULE:\\Qa\\E/b/", "RULE:a/$a/", "RULE:(a)/$1$/", "RULE:(a)/${1}/", "DEFAULT RULE:a/b/"],
)  # fmt: skip
def test_malformed_rules_and_rules_of_javas_regex_dialect_are_refused(rules: str) -> None:
    with pytest.raises(KafkaError) as caught:
        PrincipalRules.parse(rules)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "ssl.principal.mapping.rules" in caught.value.message
