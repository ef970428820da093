"""Avro values of a schema registry: the wire format, what resolves, what is bad, and what is the registry's fault; then with Spark."""

import datetime
import decimal
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type
from tests.spark.conftest import Topics
from tests.spark.schema_registry import SchemaRegistry
from tests.spark.test_streams import run, written

from ottla.errors import KafkaError
from ottla.spark import avro, dead_letters, read_table, read_topic, to_topic
from ottla.spark.avro_types import schema_of, struct_of
from ottla.spark.avro_values import AvroDecoder, Encoder
from ottla.spark.queries import make_views
from ottla.spark.registry import ABSENT_S_MAX, PROTOBUF, Registry, RegistryError
from ottla.spark.registry_values import CORRUPT, BadValueError

UTC = datetime.UTC
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def wire(schema_id: int, schema: Any, record: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), record)
    return b"\0" + schema_id.to_bytes(4, "big") + content.getvalue()


def decoder(registry: SchemaRegistry, subject: str, **more: Any) -> AvroDecoder:
    asked = Registry(registry.address, **more)
    return AvroDecoder(asked, asked.newest(subject).texts)


def test_a_value_of_an_older_schema_is_read_as_the_newest_one_says(registry: SchemaRegistry):
    old, new = registry.add("orders-value", OLD), registry.add("orders-value", NEW)
    found = decoder(registry, "orders-value")
    assert found.row(b"\0\0\0\0\2\2a\x06\0") == {"id": "a", "amount": 3, "note": None}  # by the specification, byte for byte
    assert found.row(wire(new, NEW, {"id": "a", "amount": 3, "note": "n"})) == {"id": "a", "amount": 3, "note": "n"}
    for _ in range(3):
        assert found.row(wire(old, OLD, {"id": "b", "amount": 4})) == {"id": "b", "amount": 4, "note": None}
    assert registry.asked.count(f"/schemas/ids/{old}") == 1


def test_what_is_no_value_of_a_known_schema_is_bad(registry: SchemaRegistry):
    other = registry.add("other-value", {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "double"}]})
    new = registry.add("orders-value", NEW)
    found, good = decoder(registry, "orders-value"), wire(new, NEW, {"id": "a", "amount": 3, "note": None})
    for value, word in (
        (b"", "does not begin with a zero"),
        (b'{"id":"a"}', "does not begin with a zero"),
        (good[:4], "does not begin with a zero"),
        (good[:-1], "no Avro of its schema"),
        (good + b"\0", "bytes are left"),
        (good[:5] + b"\xff" * 40, "no Avro of its schema"),
        (b"\0\0\0\0\x63" + good[5:], "the registry has no schema 99"),
        (b"\0\xff\xff\xff\xff" + good[5:], "the registry has no schema -1"),
        (wire(other, json.loads(registry.schemas[other]["schema"]), {"id": 1.0}), "does not resolve"),
    ):
        with pytest.raises(BadValueError, match=word):
            found.row(value)


def test_a_registry_that_is_away_is_no_fault_of_a_value(registry: SchemaRegistry):
    old, _ = registry.add("orders-value", OLD), registry.add("orders-value", NEW)
    now, pauses = [0.0], []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    found = decoder(registry, "orders-value", now_s=lambda: now[0], pause=pause)
    registry.failures_left = 3
    assert found.row(wire(old, OLD, {"id": "b", "amount": 4}))["amount"] == 4
    assert len(pauses) == 3
    registry.failures_left = 1_000
    with pytest.raises(RegistryError, match=r"^NETWORK_EXCEPTION: schema registry .*: 503"):  # INVALID_CONFIG ends a query for good
        found.row(b"\0\0\0\0\x63")
    assert now[0] < 60
    with pytest.raises(RegistryError, match=r"^NETWORK_EXCEPTION: schema registry http://127\.0\.0\.1:1 cannot be reached"):
        Registry("http://127.0.0.1:1", now_s=lambda: now[0], pause=pause).newest("orders-value")


def test_a_404_of_a_proxy_before_a_registry_is_no_fault_of_a_value(registry: SchemaRegistry):
    old, _ = registry.add("orders-value", OLD), registry.add("orders-value", NEW)
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds
        registry.is_behind_proxy = now[0] < 5 or now[0] > 20

    found = decoder(registry, "orders-value", now_s=lambda: now[0], pause=pause)
    registry.is_behind_proxy = True
    assert found.row(wire(old, OLD, {"id": "b", "amount": 4}))["amount"] == 4
    now[0], registry.is_behind_proxy = 21, True
    with pytest.raises(RegistryError, match=r"^NETWORK_EXCEPTION: .* 404, which is no registry's answer: <h1>"):
        found.row(b"\0\0\0\0\x63")


def test_a_registry_that_ends_within_an_answer_is_asked_again(registry: SchemaRegistry):
    """Half an answer was an error of Python's own at once."""
    number = registry.add("orders-value", NEW)
    registry.halves_left = 2
    pauses: list[float] = []
    assert Registry(registry.address, pause=pauses.append).newest("orders-value").schema_id == number
    assert len(pauses) == 2
    registry.halves_left = 100
    with pytest.raises(RegistryError, match="cannot be reached: IncompleteRead"):  # and not: is it a schema registry?
        Registry(registry.address, now_s=lambda: 10.0 * len(pauses), pause=pauses.append).newest("orders-value")


def test_an_address_that_is_none_is_refused_and_not_asked_again():
    for address in ("http://127.0.0.1:80a", "http://127.0.0.1:99999", "http://127.0.0.1:0"):
        with pytest.raises(RegistryError, match=r"^INVALID_CONFIG: the address of a schema registry is"):
            Registry(address)


def test_a_schema_that_is_unknown_is_asked_for_once_in_a_second(registry: SchemaRegistry):
    """Each record was a question: of a topic with many records of another registry, a batch took minutes."""
    registry.add("orders-value", NEW)
    now = [0.0]
    found = decoder(registry, "orders-value", now_s=lambda: now[0])

    def count() -> int:
        for number in (98, 98, 99, 98):
            with pytest.raises(BadValueError, match=f"the registry has no schema {number}"):
                found.row(struct.pack(">bi", 0, number) + b"x")
        return sum(path.startswith("/schemas/ids/9") for path in registry.asked)

    assert count() == 2
    now[0] += 1
    assert count() == 4
    registry.schemas[99] = registry.schemas[1]  # it has come meanwhile
    now[0] += 1
    assert found.row(wire(99, NEW, {"id": "a", "amount": 3, "note": None}))["amount"] == 3


def test_a_value_of_a_schema_that_cannot_be_used_is_bad_and_its_schema_asked_for_once(registry: SchemaRegistry):
    """It ended the query for good, or failed it again at each start: one record of a stranger, whatever ``bad_rows`` said."""
    new = registry.add("orders-value", NEW)
    found, good = decoder(registry, "orders-value"), wire(new, NEW, {"id": "a", "amount": 3, "note": None})
    number = len(registry.schemas)
    for schema, word in (
        ({"schema": "{}", "schemaType": "JSON"}, "is of another kind than the one that is read"),
        ({"schema": "{not JSON"}, "cannot be parsed: JSONDecodeError"),
        ({"schema": '{"type":"record","name":"R","fields":[{"name":"a","type":"com.other.X"}]}'}, "cannot be parsed: UnknownType"),
        ({"schema": '{"type":"record","name":"R","fields":3}'}, "cannot be parsed: TypeError"),
        ({"schema": '{"type":"array","items":' * 100_000 + '"int"' + "}" * 100_000}, "cannot be parsed: RecursionError"),
    ):
        number += 1
        registry.schemas[number] = schema
        for _ in range(3):
            with pytest.raises(BadValueError, match=f"schema {number} of the registry {word}"):
                found.row(struct.pack(">bi", 0, number) + good[5:])
        assert registry.asked.count(f"/schemas/ids/{number}") == 1
    assert found.row(good)["amount"] == 3


def test_records_whose_unknown_schemas_take_turns_do_not_each_wait_for_a_slow_registry(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
):
    """What was known for a second was no longer so when the next answer had come: ten thousand such records took hours."""
    registry.add("orders-value", NEW)
    now, answer = [0.0], registry.answer
    found = decoder(registry, "orders-value", now_s=lambda: now[0])

    def slow(*asked: Any) -> Any:
        now[0] += 2
        return answer(*asked)

    monkeypatch.setattr(registry, "answer", slow)
    for _ in range(100):
        for number in range(50, 70):
            with pytest.raises(BadValueError, match=f"the registry has no schema {number}"):
                found.row(struct.pack(">bi", 0, number) + b"x")
    assert now[0] <= 3 * 20 * 2


def test_an_unknown_schema_is_asked_for_again_within_minutes_however_slow_the_registry_is(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
):
    """It may have been registered since. Answers of half a minute to forty ids had been kept for hours."""
    registry.add("orders-value", NEW)
    now, answer, asked = [0.0], registry.answer, [0]
    found = decoder(registry, "orders-value", now_s=lambda: now[0])

    def slow(*what: Any) -> Any:
        now[0] += 29
        asked[0] += 1
        return answer(*what)

    monkeypatch.setattr(registry, "answer", slow)
    for number in (*range(50, 90), 89):
        with pytest.raises(BadValueError):
            found.row(struct.pack(">bi", 0, number) + b"x")
    assert asked[0] == 40
    now[0] += ABSENT_S_MAX
    with pytest.raises(BadValueError):
        found.row(struct.pack(">bi", 0, 89) + b"x")
    assert asked[0] == 41


@pytest.mark.parametrize(
    "answer",
    [
        [], {}, "x", {"id": 1}, {"schema": None}, {"schema": {"type": "string"}}, {"schema": "x", "references": [1]},
        {"schema": "x", "references": [{"name": "y"}]}, {"schema": "x", "references": 1}, {"schema": "x", "schemaType": ["AVRO"]},
    ],
)  # fmt: skip
def test_an_answer_without_a_schema_is_no_fault_of_a_value(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, answer: Any):
    """It ended a query for good that had run for months, when the registry was upgraded; some answers were a KeyError without a place."""
    registry.add("orders-value", NEW)
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    found = decoder(registry, "orders-value", now_s=lambda: now[0], pause=pause)
    monkeypatch.setattr(registry, "answer", lambda *_: (200, answer))
    with pytest.raises(RegistryError, match=r"^NETWORK_EXCEPTION: .*: the answer has (no schema; is it a schema|references of another)"):
        found.row(struct.pack(">bi", 0, 99))
    assert now[0] >= 30


@pytest.mark.parametrize("answer", [{"schema": "x"}, {"schema": "x", "id": "seven"}, {"schema": "x", "id": None}])
def test_an_answer_without_an_id_is_an_error_that_says_so(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, answer: Any):
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(registry, "answer", lambda *_: (200, answer))
    asked = Registry(registry.address, lambda: now[0], pause)
    with pytest.raises(RegistryError, match=r"^NETWORK_EXCEPTION: .*: the answer has no id"):
        asked.newest("orders-value")
    with pytest.raises(RegistryError, match=r"^NETWORK_EXCEPTION: .*: the answer has no id"):
        asked.register("orders-value", "{}")


def test_the_password_of_a_registry_is_not_sent_to_the_server_that_a_redirect_names():
    with SchemaRegistry(user="ann:secret") as registry, SchemaRegistry() as other:
        registry.add("orders-value", OLD)
        other.add("orders-value", NEW)
        registry.moved_to = registry.address.replace("ann:secret@", "")
        assert json.loads(Registry(registry.address).newest("orders-value").texts[-1]) == OLD
        registry.moved_to = other.address
        assert json.loads(Registry(registry.address).newest("orders-value").texts[-1]) == NEW  # it takes no question with a password


def test_the_password_of_a_registry_is_sent_and_in_no_error():
    with SchemaRegistry(user="ann:se cret") as registry:
        registry.add("orders-value", NEW)
        given = registry.address.replace("se cret", "se%20cret")
        assert Registry(given).newest("orders-value").schema_id == 1
        with pytest.raises(RegistryError) as refused:
            Registry(given.replace("se%20cret", "wrong")).newest("orders-value")
    assert "401" in str(refused.value)
    assert "wrong" not in str(refused.value)
    with pytest.raises(RegistryError, match="is http://host:port"):
        avro("localhost:8081")


def test_a_subject_that_is_not_there_and_one_of_another_kind_have_their_way_out(registry: SchemaRegistry):
    """The first was the registry's own JSON, the second did not say what reads it."""
    with pytest.raises(RegistryError, match=r"has no schema of subject 'missing-value': register one, or name .* with subject=") as absent:
        Registry(registry.address).newest("missing-value")
    assert absent.value.status == 404
    registry.add("rows-value", "string")
    with pytest.raises(RegistryError, match=r"is AVRO, and not PROTOBUF: read it with avro\(\.\.\.\)$"):
        Registry(registry.address, kind=PROTOBUF).newest("rows-value")
    registry.add("documents-value", "{}", kind="JSON")
    with pytest.raises(RegistryError, match=r"is JSON, and not AVRO: read the raw value, and decode it yourself"):
        Registry(registry.address).newest("documents-value")


def test_a_schema_that_another_one_refers_to_may_be_deleted_from_its_subject(registry: SchemaRegistry):
    """The registry still has both by the id of the first one, and what was written by it."""
    registry.add("place", {"type": "record", "name": "Place", "fields": [{"name": "street", "type": "string"}]})
    schema = {"type": "record", "name": "Order", "fields": [{"name": "place", "type": "Place"}]}
    number = registry.add("orders-value", schema, [{"name": "Place", "subject": "place", "version": 1}])
    registry.deleted.add("place")
    assert len(Registry(registry.address).texts(number)) == 2


def test_logical_types_are_the_readers_and_references_are_followed(registry: SchemaRegistry):
    registry.add("place", {"type": "record", "name": "Place", "namespace": "shop", "fields": [{"name": "street", "type": "string"}]})
    schema = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "places", "type": {"type": "map", "values": "Place"}},
            {"name": "more", "type": {"type": "array", "items": ["null", "shop.Place"]}},
        ],
    }
    number = registry.add("orders-value", schema, [{"name": "shop.Place", "subject": "place", "version": 1}])
    found = decoder(registry, "orders-value")
    texts = Registry(registry.address).newest("orders-value").texts
    struct, _ = struct_of([json.loads(text) for text in texts])
    assert struct.simpleString() == (
        "struct<at:timestamp,day:date,price:decimal(6,2),kind:string,clock:int,places:map<string,struct<street:string>>,"
        "more:array<struct<street:string>>>"
    )
    value = (
        b"\0" + number.to_bytes(4, "big") + b"\xd0\x0f\2\2\4\4\xd2\2\x0a\2\2k\2s\0\2\0\0"
    )  # 1,000 ms; day 1; 12.34; B; 5; {"k": s}; [null]
    kind = to_arrow_type(types.StructType([*struct.fields, types.StructField(CORRUPT, types.StringType())]), timezone="UTC")
    [row, none, bad] = found.column([value, None, b"?"], kind).to_pylist()
    assert row["at"] == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (row["day"], row["price"], row["kind"], row["clock"]) == (datetime.date(1970, 1, 2), decimal.Decimal("12.34"), "B", 5)
    assert (row["places"], row["more"], row[CORRUPT]) == ([("k", {"street": "s"})], [None], None)
    assert none is None
    assert "does not begin" in bad[CORRUPT]


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ("string", "no record"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]}, "value.x: a union of several types"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]}, "a record within itself"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "Unknown"}]}, "Avro's type Unknown"),
    ],
)
def test_a_schema_that_has_no_columns_is_refused(schema: Any, word: str):
    with pytest.raises(KafkaError, match=word):
        struct_of([schema])


def test_a_row_that_is_written_is_the_row_that_is_read(registry: SchemaRegistry):
    inner = types.StructType([types.StructField("m", types.MapType(types.StringType(), types.LongType()))])
    kinds = [types.StringType(), types.LongType(), types.DoubleType(), types.BinaryType(), types.DateType(), types.TimestampType(),
             types.DecimalType(9, 3), types.ArrayType(inner), types.BooleanType(), types.TimestampNTZType()]  # fmt: skip
    schema = types.StructType([types.StructField(f"c{index}", kind) for index, kind in enumerate(kinds)])
    made, _ = schema_of(schema, "rows")
    number = registry.add("rows-value", made)
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    content = ["ä", -(2**63), 0.5, b"\0", at.date(), at.replace(tzinfo=UTC), decimal.Decimal("-1.500"), [{"m": [("k", 1)]}, None], True, at]
    for row in (dict(zip(schema.names, content)), dict.fromkeys(schema.names)):
        value = Encoder(number, json.dumps(made), schema).value(row)
        assert value is not None
        kind = to_arrow_type(types.StructType([*schema.fields, types.StructField(CORRUPT, types.StringType())]), timezone="UTC")
        assert decoder(registry, "rows-value").column([value], kind).to_pylist() == [{**row, CORRUPT: None}]
    assert Encoder(number, json.dumps(made), schema).value(None) is None


@pytest.mark.spark
def test_a_pipeline_reads_and_writes_avro_and_sets_what_is_bad_aside(
    spark: Any, topics: Topics, tmp_path: Path, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
):
    orders, target, letters = topics.create(), topics.create(), topics.create()
    old, new = registry.add(f"{orders}-value", OLD), registry.add(f"{orders}-value", NEW)
    values = [
        wire(old, OLD, {"id": "a", "amount": 1}), b"?", wire(new, NEW, {"id": "b", "amount": 2**40, "note": "n"}), None,
        b"\0\0\0\0\x63",
    ]  # fmt: skip
    topics.produce(orders, [(b"k%d" % index, value) for index, value in enumerate(values)])
    schemas = avro(registry.address)

    def start() -> None:
        frame = read_topic(spark, orders, schemas, bad_rows=letters, bootstrap=topics.bootstrap).where("amount > 0")
        run(to_topic(frame, target, key="id", values=schemas, bootstrap=topics.bootstrap, app=target), tmp_path)

    with monkeypatch.context() as patch:  # a schema that comes between the batch and its dead letters: the record would be in neither
        read = dead_letters._read
        patch.setattr(dead_letters, "_read", lambda *given: (letter for letter in list(read(*given))[:0]))
        with pytest.raises(StreamingQueryException, match=r"2 records of .* were bad, and 0 are now"):
            start()
        assert written(topics, target) == []
    start()
    found = decoder(registry, f"{target}-value")
    assert [(record.key, found.row(record.value)) for record in written(topics, target)] == [
        (b"a", {"id": "a", "amount": 1, "note": None}),
        (b"b", {"id": "b", "amount": 2**40, "note": "n"}),
    ]
    bad = written(topics, letters)
    assert [record.value for record in bad] == [values[1], values[4]]
    assert "the registry has no schema 99" in str(bad[1].headers)

    table = read_table(spark, target, schemas, key="k", bootstrap=topics.bootstrap)
    assert sorted(map(tuple, table.where(F.col("note").isNull()).collect())) == [("a", "a", 1, None)]
    make_views(spark, [orders], {orders: schemas}, bootstrap=topics.bootstrap, since_ms=None, is_stream=False)
    assert [tuple(row) for row in spark.sql(f"select id, offset from `{orders}` where id is not null").collect()] == [("a", 0), ("b", 2)]


def test_what_cannot_be_written_as_avro_is_refused(registry: SchemaRegistry):
    kind = types.StructType([types.StructField("c", types.MapType(types.LongType(), types.LongType()))])
    with pytest.raises(KafkaError, match="column t_c is map<bigint,bigint>, which Avro has no type for"):
        schema_of(kind, "t")
    with pytest.raises(RegistryError, match=r"409 .*incompatible"):
        Registry(registry.address).register("incompatible-value", "{}")
    with pytest.raises(KafkaError, match="name one with subject="):
        avro(registry.address).of_topic("a,b")
