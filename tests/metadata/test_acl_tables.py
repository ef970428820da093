"""Tables of ACLs in the making: in slices, of patterns with the ACLs of thousands, and beside the tables before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord, TopicRecord
from ottla.metadata.acls import FEW, is_there
from ottla.metadata.history import ImageHistory
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.replay import ImageBuilder, replay

FEWER, MORE = 500, 4000


def acl(number: int, *, name: str = "t", host: str = "*", operation: int = Operation.READ) -> AccessControlEntryRecord:
    """Of the user of that number."""
    return AccessControlEntryRecord(
        id=f"{number}/{name}/{host}/{int(operation)}".encode(),
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=f"User:{number}",
        host=host,
        operation=operation,
        permission_type=Permission.ALLOW,
    )


def steps_of(work: Callable[[], object]) -> int:
    """How many lines and calls of Python the work takes."""
    count = 0

    def trace(_frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize(
    "work",
    [
        lambda image: is_there(image.acl_tables, acl(7)),
        lambda image: is_there(image.acl_tables, acl(-1)),
        lambda image: replay(image, [acl(-1)]).acl_tables,
        lambda image: replay(image, [acl(7, operation=Operation.WRITE)]).acl_tables,
        lambda image: replay(image, [RemoveAccessControlEntryRecord(acl(7).id)]).acl_tables,
    ],
    ids=["one that is there", "one that is not", "one more user", "one more operation", "one user less"],
)
def test_one_acl_takes_as_long_however_many_users_its_pattern_names(work: Callable[[ClusterImage], object]) -> None:
    few, many = (replay(EMPTY_IMAGE, [acl(number) for number in range(count)]) for count in (FEWER, MORE))
    work(few)
    assert steps_of(lambda: work(many)) == steps_of(lambda: work(few))


def test_a_large_pattern_of_an_image_stays_while_the_next_one_changes_it() -> None:
    builder = ImageBuilder(EMPTY_IMAGE)
    images = []
    for number in range(3 * FEW):
        builder.add(acl(number))
        images.append(builder.image())
    for number in range(3 * FEW):
        builder.add(RemoveAccessControlEntryRecord(acl(number).id))
        images.append(builder.image())
    for at, image in enumerate(images):
        there = [number for number in range(3 * FEW) if is_there(image.acl_tables, acl(number))]
        assert there == list(range(at + 1) if at < 3 * FEW else range(at + 1 - 3 * FEW, 3 * FEW))
        assert {principal for principal, _ in image.acl_tables.patterns_of} == {f"User:{number}" for number in there}


def test_a_user_is_named_by_a_pattern_until_the_last_host_of_it_is_gone() -> None:
    image = replay(EMPTY_IMAGE, [acl(1), acl(1, host="10.0.0.1"), acl(1, host="10.0.0.1", operation=Operation.WRITE)])
    for gone, hosts in ((acl(1, host="10.0.0.1"), {"*", "10.0.0.1"}), (acl(1), {"10.0.0.1"})):
        image = replay(image, [RemoveAccessControlEntryRecord(gone.id)])
        assert {host for _, host in image.acl_tables.patterns_of} == hosts
    assert not replay(image, [RemoveAccessControlEntryRecord(acl_id) for acl_id in image.acls]).acl_tables.cells


def test_changes_settled_in_slices_make_the_image_that_all_at_once_make() -> None:
    records = [acl(number % 9, name=f"t{number % 5}", operation=2 + number % 7) for number in range(300)]
    changes = [*records, *(RemoveAccessControlEntryRecord(record.id) for record in records[::3]), *records[::2]]
    expected = replay(EMPTY_IMAGE, changes)
    history = ImageHistory(EMPTY_IMAGE)
    history.append([*changes, TopicRecord("t", b"t" * 16)], end_offset=1, epoch=1)
    slices = 1
    while not history.settle(50):
        slices += 1
    assert slices == -(-len(changes) // 50)
    image = history.seal()
    assert (image.acls, image.acl_tables) == (expected.acls, expected.acl_tables)
    assert set(image.topics) == {"t"}


def test_who_asks_for_the_draft_sees_all_that_was_decided_whatever_is_not_settled() -> None:
    history = ImageHistory(EMPTY_IMAGE)
    history.append([acl(number) for number in range(100)], end_offset=1, epoch=1)
    assert not history.settle(10)
    assert len(history.draft.acls) == 100
    assert all(is_there(history.draft.acl_tables, acl(number)) for number in range(100))
    assert history.settle(10), "nothing is left"


def test_what_was_dropped_before_it_was_settled_is_not_there() -> None:
    history = ImageHistory(EMPTY_IMAGE)
    history.append([acl(number) for number in range(100)], end_offset=1, epoch=1)
    history.settle(10)
    history.drop_uncommitted()
    assert history.settle(10)
    assert history.draft is EMPTY_IMAGE
