"""Names and fields of other clients: the error of an import, of a look and of a constructor says what is meant here."""

from __future__ import annotations

import copy
import pickle
import re
from types import ModuleType
from typing import Any

import pytest

import ottla
from ottla import aio, sync
from ottla.client.other_names import OTHER_FIELDS, OTHER_NAMES
from ottla.sync.sent_record import SentRecord

MADE: dict[str, Any] = {
    "ConsumerRecord": aio.ConsumerRecord("t", 0, 0, 1, 0, None, None, (), 0),
    "RecordMetadata": aio.RecordMetadata("t", 0, 0, 1),
    "FoundOffset": aio.FoundOffset(0, 1, 0),
    "KafkaError": aio.KafkaError(3, "no"),
    "TopicPartition": aio.TopicPartition("t", 0),
    "OffsetAndMetadata": aio.OffsetAndMetadata(1),
    "Node": aio.Node(1, "h", 1),
    "ClusterDescription": aio.ClusterDescription("c", 1, []),
    "NewTopic": aio.NewTopic("t"),
}


@pytest.mark.parametrize("name", ottla._OF_CLIENTS)
def test_an_import_from_the_package_says_which_module_has_the_name(name: str) -> None:
    for module in (aio, sync):
        assert hasattr(module, name)
    text = f"write `from ottla.sync import {name}`, or with asyncio `from ottla.aio import {name}`"
    with pytest.raises(ImportError, match=f"^cannot import name '{name}' from 'ottla': {text}$"):
        exec(f"from ottla import {name}", {})  # as a program has it
    with pytest.raises(AttributeError, match=text):
        getattr(ottla, name)
    assert not hasattr(ottla, name)
    assert not hasattr(ottla, "nonsense")


@pytest.mark.parametrize("module", [aio, sync])
@pytest.mark.parametrize("name", OTHER_NAMES)
def test_an_import_of_another_clients_name_says_what_is_meant(module: ModuleType, name: str) -> None:
    text = re.escape(f"cannot import name {name!r} from {module.__name__!r}: {OTHER_NAMES[name]}")
    with pytest.raises(ImportError, match=f"^{text}$"):
        exec(f"from {module.__name__} import {name}", {})  # as a program has it
    with pytest.raises(AttributeError, match=re.escape(OTHER_NAMES[name])):
        getattr(module, name)
    assert not hasattr(module, name)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_what_a_hint_of_a_name_says_to_write_is_there(name: str) -> None:
    named = re.findall(r"\b(?:write|or) ([A-Z]\w+)", OTHER_NAMES[name])
    assert not [each for each in named if each not in aio.__all__ and each not in aio.ErrorCode.__members__]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TopicAlreadyExistsError", "write KafkaError; its code is ErrorCode.TOPIC_ALREADY_EXISTS"),
        ("Comsumer", "did you mean Consumer?"),
    ],
)
def test_errors_of_one_code_and_misspelt_names_have_hints(name: str, hint: str) -> None:
    with pytest.raises(ImportError, match=re.escape(hint)):
        exec(f"from ottla.sync import {name}", {})


def test_a_name_that_means_nothing_has_pythons_own_error() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'shoe_size' from 'ottla.sync' \("):
        exec("from ottla.sync import shoe_size", {})
    with pytest.raises(AttributeError, match=r"module 'ottla.aio' has no attribute 'shoe_size'$"):
        aio.shoe_size  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, fields in OTHER_FIELDS.items() for field in fields])
def test_a_field_of_another_client_is_an_attribute_error_with_what_is_meant(kind: str, field: str) -> None:
    made = MADE[kind]
    with pytest.raises(AttributeError, match=re.escape(f"has no attribute {field!r}: {OTHER_FIELDS[kind][field]}")) as refused:
        getattr(made, field)
    assert refused.value.name == field
    assert not hasattr(made, field)
    assert field not in dir(made)


@pytest.mark.parametrize("kind", MADE)
def test_what_has_hints_is_as_any_value(kind: str) -> None:
    made = MADE[kind]
    assert repr(made)
    with pytest.raises(AttributeError):
        made.shoe_size  # noqa: B018
    if kind != "KafkaError":
        assert copy.copy(made) == made
        assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: aio.TopicPartition("a", 0, 5), 'an offset is given in a dict: {TopicPartition("orders", 0): 5}'),  # type: ignore[arg-type]
        (lambda: aio.OffsetAndMetadata(1, "x", -1), "OffsetAndMetadata(offset, text)"),  # type: ignore[call-arg]
        (lambda: aio.OffsetAndMetadata(1, leader_epoch=3), "commit(record) keeps it"),  # type: ignore[call-arg]
        (lambda: aio.ConfigResource("topic", "x"), 'write Topic("orders"), Broker(1)'),  # type: ignore[arg-type]
        (lambda: SentRecord().result(timeout_ms=5), "write result(timeout), in seconds"),  # type: ignore[arg-type]
        (lambda: SentRecord().exception(timeout_ms=5), "write exception(timeout), in seconds"),  # type: ignore[arg-type]
    ],
)
def test_a_constructor_or_a_call_of_another_client_says_what_is_meant(call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        call()


def test_a_producer_has_the_consumers_hint_for_partitions() -> None:
    with sync.Producer("h:1") as producer, pytest.raises(AttributeError, match=r"write partitions_for\(topic\)"):
        producer.partitions_for_topic  # type: ignore[attr-defined]  # noqa: B018
