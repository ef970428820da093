"""Protobuf values of a schema registry: the wire format, older and newer schemas, what is bad; then with Spark."""

import base64
import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type
from tests.spark.conftest import Topics
from tests.spark.schema_registry import SchemaRegistry
from tests.spark.test_streams import run, written

from ottla.errors import KafkaError
from ottla.spark import protobuf, read_topic, to_topic
from ottla.spark.protobuf_values import ProtobufDecoder, ProtobufValues, indexes_as_bytes, indexes_from
from ottla.spark.registry import RegistryError
from ottla.spark.registry_values import CORRUPT, BadValueError

Field = descriptor_pb2.FieldDescriptorProto
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def orders_file(*, version: int = 2) -> descriptor_pb2.FileDescriptorProto:
    """message Other { message Order {string id = 1; int64 amount = 2; optional string note = 3;} }  message Order { the same }"""
    made = descriptor_pb2.FileDescriptorProto(syntax="proto3", package="shop")
    other, order = made.message_type.add(name="Other"), made.message_type.add(name="Order")
    for message in (other.nested_type.add(name="Order"), order):
        message.field.add(name="id", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
        message.field.add(name="amount", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
        if version > 1:
            message.oneof_decl.add(name="_note")
            message.field.add(
                name="note", number=3, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0
            )
    return made


def add(registry: SchemaRegistry, subject: str, file: descriptor_pb2.FileDescriptorProto, references: Any = None) -> int:
    return registry.add(subject, base64.b64encode(file.SerializeToString()).decode(), references, kind="PROTOBUF")


def values(registry: SchemaRegistry, subject: str, message: str | None = None) -> ProtobufValues:
    return protobuf(registry.address, subject=subject, message=message).of_topic("any")


def wire(schema_id: int, indexes: bytes, content: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + content


def test_a_message_is_read_by_the_newest_schema_whatever_version_wrote_it(registry: SchemaRegistry):
    old, new = add(registry, "orders", orders_file(version=1)), add(registry, "orders", orders_file())
    found = values(registry, "orders", "shop.Order").decoder()
    # By Protobuf's encoding, byte for byte: field 1 is "a", field 2 is 150, field 3 is "n".
    assert found.row(wire(old, b"\x02\x02", b"\x0a\x01a\x10\x96\x01")) == {"id": "a", "amount": 150, "note": None}
    assert found.row(wire(new, b"\x02\x02", b"\x0a\x01a\x10\x96\x01\x1a\x01n")) == {"id": "a", "amount": 150, "note": "n"}
    assert found.row(wire(new, b"\x02\x02", b"\x2a\x01x")) == {"id": "", "amount": 0, "note": None}
    nested = values(registry, "orders", "shop.Other.Order").decoder()
    assert nested.row(wire(new, b"\x04\x00\x00", b"\x0a\x01b")) == {"id": "b", "amount": 0, "note": None}
    assert values(registry, "orders").names == []  # the first message of the file has no field of its own


def test_what_is_no_value_of_the_message_is_bad(registry: SchemaRegistry):
    new = add(registry, "orders", orders_file())
    found = values(registry, "orders", "shop.Order").decoder()
    for value, word in (
        (b"", "does not begin with a zero"),
        (b'{"id":"a"}', "does not begin with a zero"),
        (wire(new, b"", b""), "no indexes"),
        (wire(new, b"\x80\x80\x80\x80\x80\x01", b""), "no indexes"),
        (wire(new, b"\x01", b""), "-1 indexes"),
        (wire(new, b"\x02\x06", b""), r"no message at \[3\]"),
        (wire(new, b"\x02\x01", b""), r"no message at \[-1\]"),
        (wire(new, b"\x00", b""), "a message shop.Other, and shop.Order is read"),
        (wire(new, b"\x04\x00\x00", b""), "a message shop.Other.Order, and"),
        (wire(new, b"\x02\x02", b"\x0a\x05a"), "no shop.Order of Protobuf"),
        (wire(99, b"\x02\x02", b""), "the registry has no schema 99"),
    ):
        with pytest.raises(BadValueError, match=word):
            found.row(value)
    stranger = registry.add("others-value", "string")
    with pytest.raises(BadValueError, match=f"schema {stranger} of the registry is of another kind than the one that is read"):
        found.row(wire(stranger, b"\x02\x02", b""))
    broken = registry.add("others-value", "AAAA", kind="PROTOBUF")
    with pytest.raises(BadValueError, match=f"schema {broken} of the registry cannot be parsed"):
        found.row(wire(broken, b"\x02\x02", b""))
    registry.failures_left = 10_000
    away = ProtobufDecoder(_impatient(registry), values_texts(registry, "orders"), (1,))
    with pytest.raises(RegistryError, match="503"):
        away.row(wire(broken + 1, b"\x02\x02", b""))


def _impatient(registry: SchemaRegistry) -> Any:
    from ottla.spark.registry import PROTOBUF, Registry

    clock = iter(range(0, 10_000, 20))
    return Registry(registry.address, lambda: float(next(clock)), lambda _: None, kind=PROTOBUF)


def values_texts(registry: SchemaRegistry, subject: str) -> tuple[str, ...]:
    number = registry.subjects[subject][-1]
    return ("\n" + str(registry.schemas[number]["schema"]),)


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (2, 70, 3), (300,)])
def test_indexes_come_back_from_their_bytes(indexes: tuple[int, ...]):
    content = indexes_as_bytes(indexes)
    assert indexes_from(b"head" + content + b"\xff", 4) == (indexes, 4 + len(content))
    assert (content == b"\0") == (indexes == (0,))


def test_imports_are_other_subjects_or_protobufs_own(registry: SchemaRegistry):
    money = descriptor_pb2.FileDescriptorProto(syntax="proto3", package="shop")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=Field.TYPE_UINT64, label=Field.LABEL_OPTIONAL)
    add(registry, "money", money)
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3", dependency=["shop/money.proto", "google/protobuf/timestamp.proto"])
    order = file.message_type.add(name="Order")
    order.field.add(name="price", number=1, type=Field.TYPE_MESSAGE, type_name=".shop.Money", label=Field.LABEL_OPTIONAL)
    order.field.add(name="at", number=2, type=Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=Field.LABEL_OPTIONAL)
    number = add(registry, "orders", file, [{"name": "shop/money.proto", "subject": "money", "version": 1}])
    found = values(registry, "orders")
    assert found.schema.simpleString() == "struct<price:struct<cents:decimal(20,0)>,at:timestamp>"
    at = timestamp_pb2.Timestamp(seconds=int(MOMENT.timestamp()), nanos=678901000).SerializeToString()
    content = b"\x0a\x0b\x08" + b"\xff" * 9 + b"\x01" + b"\x12" + bytes([len(at)]) + at
    assert found.decoder().row(wire(number, b"\0", content)) == {"price": {"cents": decimal.Decimal(2**64 - 1)}, "at": MOMENT}
    assert found.decoder().row(wire(number, b"\0", b"")) == {"price": None, "at": None}


def test_schemas_that_have_no_columns_are_refused_by_name(registry: SchemaRegistry):
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=Field.TYPE_MESSAGE, type_name=".Node", label=Field.LABEL_OPTIONAL)
    add(registry, "nodes", file)
    registry.add("avro", {"type": "string"})
    add(registry, "lost", descriptor_pb2.FileDescriptorProto(dependency=["shop/money.proto"]))
    for subject, message, word in (
        ("nodes", None, "message Node is within itself"),
        ("nodes", "Leaf", "message=Leaf: the schema has Node"),
        ("avro", None, "is AVRO, and not PROTOBUF"),
        ("lost", None, "cannot be read"),
    ):
        with pytest.raises(KafkaError, match=word):
            values(registry, subject, message)


ROW_TYPE = "name string, count int, sum bigint, share double, near float, done boolean, raw binary, at timestamp, tags array<string>"
NESTED_TYPE = (
    "place struct<street: string, zip: int>, all array<struct<n: bigint>>, by map<string, bigint>, of map<string, struct<n: bigint>>"
)


@pytest.mark.spark
def test_rows_are_written_and_read_back_and_bad_ones_set_aside(spark: Any, topics: Topics, registry: SchemaRegistry, tmp_path: Path):
    source, target, letters = topics.create(), topics.create(), topics.create()
    topics.produce(source, [(b"1", b"x"), (b"2", b"y")])
    schema: Any = types.StructType.fromDDL(f"{ROW_TYPE}, {NESTED_TYPE}")
    full = ("n", -3, 2**40, 0.5, 0.25, True, b"\0\xff", MOMENT, ["a", "b"], ("s", 7), [(1,), (2,)], {"k": 5}, {"m": (6,)})
    rows = {b"1": full, b"2": (None,) * 8 + ([], None, [], {}, {})}
    frame = spark.createDataFrame(
        [(key, *row) for key, row in rows.items()], types.StructType([types.StructField("key", types.BinaryType()), *schema.fields])
    )
    stream = spark.readStream.format("ottla").options(**topics.options(source, startingOffsets="earliest")).load().select("key")
    made = protobuf(registry.address)
    run(to_topic(stream.join(frame, "key"), target, key="key", values=made, bootstrap=topics.bootstrap, app="writes"), tmp_path / "writes")
    assert registry.kinds(f"{target}-value") == ["PROTOBUF"]
    topics.produce(target, [(b"3", b"no Protobuf")])
    back = read_topic(spark, target, made, bad_rows=letters, record="at_", bootstrap=topics.bootstrap)
    found: dict[bytes, Any] = {}

    def keep(batch: Any, number: int) -> None:
        for row in batch.collect():
            found[bytes(row["at_"]["key"])] = tuple(row[name] for name in schema.names)

    back.writeStream.foreachBatch(keep).trigger(availableNow=True).option(
        "checkpointLocation", str(tmp_path / "reads")
    ).start().awaitTermination()
    assert found.keys() == rows.keys()
    assert str(found[b"1"][schema.names.index("place")]) == "Row(street='s', zip=7)"
    assert [found[b"1"][schema.names.index(name)] for name in ("name", "count", "sum", "at", "tags", "by")] == [
        "n", -3, 2**40, MOMENT.replace(tzinfo=None), ["a", "b"], {"k": 5},
    ]  # fmt: skip
    assert found[b"2"][:8] == (None,) * 8
    copied = to_topic(
        back.drop("at_"), source, values=protobuf(registry.address, subject=f"{target}-value"), bootstrap=topics.bootstrap, app="c"
    )
    run(copied, tmp_path / "copies")
    assert [record.value for record in written(topics, letters)] == [b"no Protobuf"]
    assert [record.value for record in written(topics, source)][2:] == [record.value for record in written(topics, target)][:2]


def test_columns_that_do_not_fit_the_schema_are_refused(spark: Any, registry: SchemaRegistry):
    add(registry, "orders", orders_file())
    made = protobuf(registry.address, subject="orders", message="shop.Order")
    for ddl, word in (
        ("id int", "column id is int, and .* it is string there"),
        ("total bigint", "column total is bigint, .* no field; it has id, amount"),
    ):
        frame = spark.createDataFrame([], ddl)
        with pytest.raises(KafkaError, match=word):
            made.written(frame["*"], frame.schema, "t")
    frame = spark.createDataFrame([], "price decimal(9,2)")
    with pytest.raises(KafkaError, match=r"column t.price is decimal\(9,2\), and Protobuf has no such type"):
        protobuf(registry.address).written(frame["*"], frame.schema, "t")


def test_a_column_of_many_values_has_what_is_wrong_with_the_bad_ones(registry: SchemaRegistry):
    number = add(registry, "orders", orders_file())
    found = values(registry, "orders", "shop.Order")
    kind = to_arrow_type(types.StructType([*found.schema.fields, types.StructField(CORRUPT, types.StringType())]), timezone="UTC")
    good, bad, none = found.decoder().column([wire(number, b"\x02\x02", b"\x10\x05"), b"x", None], kind).to_pylist()
    assert (good["amount"], good[CORRUPT], none) == (5, None, None)
    assert "does not begin with a zero" in bad[CORRUPT]
