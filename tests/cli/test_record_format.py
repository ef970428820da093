"""The % language, printing and reading."""

from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.record_format import Marks, RecordFormat
from ottla.cli.record_parser import ParsedRecord, RecordParser, parser_of
from ottla.client.buffer import ConsumerRecord
from ottla.errors import KafkaError

RECORD = ConsumerRecord("orders", 3, 42, 1_600_000_000_123, 1, b"key", b"\x00\x01va", (("h1", b"x"), ("h2", None)), 5)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("%t %p %o %e %d %a", b"orders 3 42 5 1600000000123 1"),
        ("%k=%v{hex}\\n", b"key=00017661\n"),
        ("%v{base64}", b"AAF2YQ=="),
        ("%k{json}", b'"key"'),
        ("%h{%k{json}:%v{json},}", b'"h1":"x","h2":null,'),
        ("%k\udcff", b"key\xff"),
        ("%K %V %T %H", b"3 4 6 2"),
        ("%V{big32}%v", b"\0\0\0\4\x00\x01va"),
        ("%p{little64}", b"\3" + bytes(7)),
        ("%o{hex16}", b"002a"),
        ("%d{strftime[%F %T]}", b"2020-09-13 12:26:40"),
        ("%h{%k:%v,}", b"h1:x,h2:,"),
        ("%h{%k%V{big16};}", b"h1\0\1;h2\0\0;"),
        ("%v{unpack[>H2x]}", b"1"),
        ("100%% %{%}\\t\\x41", b"100% {}\tA"),
        ("%[ %] %|", b"10 50 50"),
    ],
)
def test_a_format_prints(layout: str, expected: bytes) -> None:
    assert RecordFormat(layout).render(RECORD, Marks(10, 50)) == expected


def test_a_key_or_value_that_is_null_is_null_in_json() -> None:
    """A tombstone was an empty text."""
    record = ConsumerRecord("t", 0, 1, 2, 0, None, None, (), 0)
    assert RecordFormat("%k{json} %v{json}").render(record, Marks()) == b"null null"


@pytest.mark.parametrize("layout", ["%v{unpack[>I]}", "%o{big8}", "%d{little16}"])
def test_a_record_that_a_modifier_cannot_hold_is_named(layout: str) -> None:
    """It was a traceback."""
    record = ConsumerRecord("t", 0, 300, 1_600_000_000_123, 0, None, b"text!", (), 0)
    with pytest.raises(KafkaError, match=r"record 300 of t-0 does not fit the format: "):
        RecordFormat(layout).render(record, Marks())


@pytest.mark.parametrize(
    ("layout", "said"),
    [("%v{hex", "a { has no }"), ("%", "a % at the end names no field"), ("%v{unpack[zz]}", r"{unpack\[zz\]}: bad char in struct format")],
)
def test_a_format_that_is_not_complete_says_what_it_lacks(layout: str, said: str) -> None:
    with pytest.raises(KafkaError, match=said):
        RecordFormat(layout)


@pytest.mark.parametrize("layout", ["%z", "%", "%k{rot13}", "%p{big7}", "%v{hex", "\\q"])
def test_an_unknown_directive_is_refused(layout: str) -> None:
    with pytest.raises(KafkaError, match="record format"):
        RecordFormat(layout)


def test_headers_without_a_format_are_refused_with_an_example() -> None:
    with pytest.raises(KafkaError, match=r"%h takes a format of each header in braces: '%h\{%k=%v \}'"):
        RecordFormat("%v %h\\n")


def test_json_shows_bytes_that_are_not_text_as_base64() -> None:
    item = msgspec.json.decode(RecordFormat("json").render(ConsumerRecord("t", 0, 1, 2, 0, None, b"\xff", (("h", b"a"),), 0), Marks()))
    assert item == {
        "topic": "t", "partition": 0, "offset": 1, "timestamp_ms": 2, "key": None, "value_base64": "/w==",
        "headers": [{"key": "h", "value": "a"}],
    }  # fmt: skip


def parse(layout: str, data: bytes) -> list[ParsedRecord]:
    return list(RecordParser(layout).parse(io.BytesIO(data)))


def test_lines_are_values() -> None:
    assert [record.value for record in parse("%v\\n", b"a\nb\n\nlast")] == [b"a", b"b", b"", b"last"]


def test_fields_end_at_the_literal_after_them() -> None:
    [first, second] = parse("%t:%k %v\\n", b"t1:k1 v 1\nt2:k2 v2\n")
    assert (first.topic, first.key, first.value) == ("t1", b"k1", b"v 1")
    assert (second.topic, second.key, second.value) == ("t2", b"k2", b"v2")


def test_headers_and_numbers_are_read() -> None:
    [record] = parse("%p %d %H %h{%k=%v;}%v\\n", b"3 1600 2 a=1;b=2;value\n")
    assert (record.partition, record.timestamp_ms, record.value) == (3, 1600, b"value")
    assert record.headers == [("a", b"1"), ("b", b"2")]


@pytest.mark.parametrize(("layout", "data"), [("%K{big32}%k", b"\0\0\0\5abc"), ("%k %v\\n", b"k;v"), ("%p %v", b"x y")])
def test_input_that_does_not_fit_is_refused(layout: str, data: bytes) -> None:
    with pytest.raises(KafkaError):
        parse(layout, data)


@pytest.mark.parametrize(
    ("layout", "data", "said"),
    [
        ("%k %v\\n", b"a 1\nb 2\nnokey\nc 3\n", 'line 3: "nokey" has no " " after %k (format \'%k %v\\n\')'),
        ("%k %v\\n", b"a 1\nnokey\n", 'line 2: "nokey" has no " " after %k'),
        ("%k %v\\n", b"a 1\nnokey", 'line 2: "nokey" has no " " after %k'),
        ("%t:%k %v\\n", b"t:k 1\nt:no\n", 'line 2: "no" has no " " after %k'),
        ("%h{%k=%v} %v\\n", b"a=1 x\nb\nc=2 y\n", 'line 2: "b" has no "=" after %k'),
        ("%p %v\\n", b"1 x\ny z\n", 'line 2: "y" is no number, as %p is'),
        ("<%v>\\n", b"<a>\nb>\n", 'line 2: "b>\\n" does not begin with "<"'),
        ("%V{big8}%v,%k;", b"\x01a,b;\x01b", "line 1: the input ends too early"),
    ],
)
def test_a_line_that_does_not_fit_is_named_and_no_part_of_another_record(layout: str, data: bytes, said: str) -> None:
    parser = RecordParser(layout).parse(io.BytesIO(data))
    with pytest.raises(KafkaError) as failed:
        list(parser)
    assert said in str(failed.value)


def test_a_field_has_a_newline_where_its_length_is_given_or_the_text_after_it_has_one() -> None:
    assert [(each.key, each.value) for each in parse("%K %k %v\\n", b"3 a\nb 1\n")] == [(b"a\nb", b"1")]
    assert [each.value for each in parse("%v\\n--\\n", b"a\nb\n--\nc\n--\n")] == [b"a\nb", b"c"]
    assert [(each.key, each.value) for each in parse("%k %v;", b"a\nb 1;c 2;")] == [(b"a\nb", b"1"), (b"c", b"2")]


@pytest.mark.parametrize(("layout", "name"), [("%k%v\\n", "k"), ("%V%v", "V"), ("%t %p%v\\n", "p"), ("%K{big8}%v%k", "v")])
def test_a_field_that_nothing_ends_before_the_next_one_is_refused(layout: str, name: str) -> None:
    with pytest.raises(KafkaError, match=f"nothing ends %{name} before"):
        RecordParser(layout)


@pytest.mark.parametrize("layout", ["plain", "%z", "%o"])
def test_a_format_that_cannot_be_read_is_refused(layout: str) -> None:
    with pytest.raises(KafkaError):
        RecordParser(layout)


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)), min_size=1, max_size=20))
def test_what_is_printed_with_lengths_is_read_back(pairs: list[tuple[bytes, bytes]]) -> None:
    layout = "%K{big32}%k%V{big32}%v"
    printed = b"".join(RecordFormat(layout).render(ConsumerRecord("t", 0, 0, 0, 0, key, value, (), 0), Marks()) for key, value in pairs)
    assert [(record.key, record.value) for record in parse(layout, printed)] == pairs


def test_headers_in_json_are_an_object_or_a_list_of_objects() -> None:
    parser = parser_of("json", keeps_place=False)
    for headers in ('{"h":"1","i":null}', '[{"key":"h","value":"1"},{"key":"i","value":null}]'):
        [record] = parser.parse(io.BytesIO(b'{"value":"v","headers":%s}\n' % headers.encode()))
        assert record.headers == [("h", b"1"), ("i", None)]
    with pytest.raises(KafkaError, match=r'line 1 .*: headers are of the form \{"NAME": "VALUE"\} or'):
        list(parser.parse(io.BytesIO(b'{"value":"v","headers":["h"]}\n')))


def test_text_between_fields_may_be_no_utf_8() -> None:
    assert [record.value for record in parse("%v\udcff", b"a\xffb\xff")] == [b"a", b"b"]
