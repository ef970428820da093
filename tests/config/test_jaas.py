"""``sasl.jaas.config``: what is read, and what is refused without showing it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import BrokerConfig
from ottla.config.jaas import LoginModule, parse_jaas
from ottla.errors import ErrorCode, KafkaError

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def options(text: str) -> dict[str, str]:
    return {name: secret.reveal() for name, secret in parse_jaas(text).options.items()}


def test_a_module_and_its_options_are_read() -> None:
    text = f'{PLAIN} required\n  username="admin" /* the\nbroker */ password="a;b=\\"c\\\\" user_alice=\'it"s\' // all\n user_bob=b-o_b.1;'
    assert parse_jaas(text).module is LoginModule.PLAIN
    assert options(text) == {"username": "admin", "password": 'a;b="c\\', "user_alice": 'it"s', "user_bob": "b-o_b.1"}
    assert parse_jaas(f"{SCRAM} Required;").module is LoginModule.SCRAM


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin"),
        (";", "does not begin"),
        (PLAIN, "no control flag"),
        (f"{PLAIN} needed;", "no control flag"),
        (f"{PLAIN} required", "does not end with ';'"),
        (f'{PLAIN} required password="hush"', "does not end with ';'"),
        (f'{PLAIN} required password="hush;', "cannot be read"),
        (f"{PLAIN} required password=hush!;", "cannot be read"),
        (f"{PLAIN} required password hush;", "no option of the form"),
        (f"{PLAIN} required password=;", "no option of the form"),
        (f'{PLAIN} required ="hush";', "no option of the form"),
        (f'{PLAIN} required a="hush" a="hush";', "twice"),
        (f"{PLAIN} required; {PLAIN} required;", "more than one login module"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "is not supported"),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "is not supported"),
    ],
)
def test_what_is_refused_is_not_shown(text: str, why: str) -> None:
    for parse in (parse_jaas, lambda value: BrokerConfig({"listener.name.x.plain.sasl.jaas.config": value})):
        with pytest.raises(KafkaError) as caught:
            parse(text)
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        assert why in caught.value.message
        assert "hush" not in caught.value.message


@given(st.text("abc.=\"'\\;/* \n", max_size=40))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    with suppress(KafkaError):
        assert parse_jaas(f"{PLAIN} required {text}").module is LoginModule.PLAIN


@given(st.dictionaries(st.from_regex(r"user_[a-z]{1,8}", fullmatch=True), st.text(st.characters(exclude_characters="\n"), max_size=20)))
def test_what_is_quoted_is_read_as_it_is(given_options: dict[str, str]) -> None:
    quoted = " ".join('{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"')) for name, value in given_options.items())
    assert options(f"{PLAIN} required {quoted};") == given_options
