"""Decisions over tables against one that looks at every ACL, as Kafka's description of its authorizer reads (KIP-11, KIP-290, KIP-679)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from ottla.messages.acl_codes import OPERATIONS, Operation, PatternType, Permission, ResourceType
from ottla.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.replay import ImageBuilder, replay, snapshot_records
from ottla.security.authorizer import Asker, allowed_operations, is_allowed_anywhere, java_host
from ottla.security.principal import Principal
from ottla.wire.schema import Stored

Acl = AccessControlEntryRecord
NAMES = ["a", "ab", "abc", "b", "ba", "*", "a*", "hardcode"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "User:ali", "Group:alice"]
HOSTS = ["127.0.0.1", "127.0.0.2", "*", "127.0.0.11"]
ASKERS = (("User", "alice", "127.0.0.1"), ("User", "bob", "127.0.0.2"), ("Group", "alice", "127.0.0.1"), ("User", "alice", "127.0.0.11"))
IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def covers(acl: Acl, resource_type: int, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def is_of(acl: Acl, asker: Asker) -> bool:
    return acl.principal in (asker.principal, "User:*") and acl.host in (asker.host, "*")


def model(acls: Iterable[Acl], asker: Asker, operation: Operation, resource_type: int, name: str, *, otherwise: bool) -> bool:
    """Every ACL is looked at."""
    covering = [acl for acl in acls if covers(acl, resource_type, name)]
    if not covering:
        return otherwise
    mine = [acl for acl in covering if is_of(acl, asker)]
    if any(acl.permission_type == Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
        return False
    enough = {operation, Operation.ALL} | IMPLIED.get(operation, set())
    return any(acl.permission_type == Permission.ALLOW and acl.operation in enough for acl in mine)


def model_anywhere(acls: Iterable[Acl], asker: Asker, operation: Operation, resource_type: int) -> bool:
    """Kafka's rule, pattern by pattern."""
    mine = [acl for acl in acls if acl.resource_type == resource_type and is_of(acl, asker) and acl.operation in (operation, Operation.ALL)]
    denied = {(acl.pattern_type, acl.resource_name) for acl in mine if acl.permission_type == Permission.DENY}
    allowed = {(acl.pattern_type, acl.resource_name) for acl in mine if acl.permission_type == Permission.ALLOW}
    if (PatternType.LITERAL, "*") in denied:
        return False
    if (PatternType.LITERAL, "*") in allowed:
        return True
    for pattern_type, name in allowed:
        if pattern_type == PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
            continue
        if not any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1)):
            return True
    return False


def drawn(rng: random.Random) -> Acl:
    resource_type = rng.choice([ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP])
    return Acl(
        id=rng.getrandbits(128).to_bytes(16, "big"),
        resource_type=resource_type,
        resource_name=rng.choice(NAMES),
        pattern_type=rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        principal=rng.choice(PRINCIPALS),
        host=rng.choice(HOSTS),
        operation=rng.choice([Operation.ALL, *sorted(OPERATIONS[resource_type]), *[Operation.WRITE] * 4]),
        permission_type=rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    )


def compare(image: ClusterImage, rng: random.Random) -> int:
    """How many decisions were compared."""
    acls, count = list(image.acls.values()), 0
    otherwise = rng.random() < 0.5
    for kind, user, host in ASKERS:
        asker = Asker.of(Principal(kind, user), host)
        for resource_type in (ResourceType.TOPIC, ResourceType.GROUP):
            for name in (*NAMES, "zz"):
                bits = allowed_operations(image.acl_tables, asker, resource_type, name, otherwise=otherwise)
                for operation in OPERATIONS[resource_type]:
                    expected = model(acls, asker, operation, resource_type, name, otherwise=otherwise)
                    assert bool(bits >> operation & 1) is expected, (asker, operation, resource_type, name, acls)
                    count += 1
            expected = model_anywhere(acls, asker, Operation.WRITE, resource_type)
            assert is_allowed_anywhere(image.acl_tables, asker, Operation.WRITE, resource_type) is expected, (asker, acls)
    return count


def test_the_authorizer_decides_as_a_search_of_all_acls_does() -> None:
    """Over programs of ACLs that come and go, in groups, with snapshots between them; 100,000 decisions."""
    count = 0
    for seed in range(60):
        rng = random.Random(seed)
        image = EMPTY_IMAGE
        for _ in range(8):
            records: list[Stored] = [drawn(rng) for _ in range(rng.randrange(4))]
            if records and rng.random() < 0.3:  # another one that says the same
                again = records[0]
                assert isinstance(again, Acl)
                records.append(Acl(bytes(reversed(again.id)), *(getattr(again, name) for name in Acl.__struct_fields__[1:])))
            records += [RemoveAccessControlEntryRecord(acl_id) for acl_id in image.acls if rng.random() < 0.3]
            image = replay(image, records)
            if rng.random() < 0.3:
                before, image = image, replay(EMPTY_IMAGE, list(snapshot_records(image)))
                assert image.acls == before.acls
            count += compare(image, rng)
    assert count >= 100_000


def test_an_image_keeps_its_tables_while_the_next_one_is_made() -> None:
    rng = random.Random(1)
    builder = ImageBuilder(EMPTY_IMAGE)
    images = []
    for _ in range(20):
        builder.add(drawn(rng))
        images.append((builder.image(), random.Random(5)))
    for image in [image for image, _ in images]:
        assert compare(image, random.Random(2))
    assert images[0][0].acl_tables is not images[1][0].acl_tables
    quiet = replay(images[0][0], [])
    assert quiet.acl_tables is images[0][0].acl_tables, "what did not change is the same object: connections remember by it"


def test_a_pattern_of_many_principals_is_asked_as_one_of_few() -> None:
    acls = [Acl(bytes([n]) * 16, ResourceType.TOPIC, "t", PatternType.LITERAL, f"User:u{n}", "*", Operation.READ, 3) for n in range(40)]
    image = replay(EMPTY_IMAGE, acls)
    for n in (0, 39):
        bits = allowed_operations(image.acl_tables, Asker.of(Principal("User", f"u{n}"), "::1"), 2, "t", otherwise=False)
        assert bits == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert not allowed_operations(image.acl_tables, Asker.of(Principal("User", "u40"), "::1"), 2, "t", otherwise=True)
    image = replay(image, [RemoveAccessControlEntryRecord(acl.id) for acl in acls[1:]])
    assert not allowed_operations(image.acl_tables, Asker.of(Principal("User", "u39"), "::1"), 2, "t", otherwise=True)
    image = replay(image, [RemoveAccessControlEntryRecord(acls[0].id)])
    assert image.acl_tables.cells == {}
    assert image.acl_tables.patterns_of == {}


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a%eth0", "fe80:0:0:0:0:0:0:a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:0db8::00ff", "2001:db8:0:0:0:0:0:ff"),
        ("broker-1", "broker-1"),
    ],
)
def test_addresses_are_compared_as_java_writes_them(host: str, shown: str) -> None:
    assert java_host(host) == shown
