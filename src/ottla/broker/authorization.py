"""The only place that is asked what a principal may do with a resource: of the cluster by the gate, of what requests name by handlers.

Without an authorizer every client may do everything. With one, everything is denied that no rule allows; the rules are the ACLs of the
newest image, and change with it. Operations are reported as a bit field: a bit is set for each operation that is defined for the type of
resource and allowed (KIP-430); Kafka's numbers of operations are the bits.
"""

from __future__ import annotations

from typing import Final, Protocol

from ottla.broker.audit import LOG, Audit
from ottla.config import BrokerConfig
from ottla.config.keys.authorizer import super_users
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import OPERATIONS, Operation, ResourceType
from ottla.metadata.acls import NO_ACLS, AclTables
from ottla.metadata.image import CommittedImages
from ottla.ports import Clock
from ottla.security.authorizer import Asker, allowed_operations, is_allowed_anywhere
from ottla.security.principal import Principal

NOT_ASKED: Final = -(2**31)
"""What is reported in place of a bit field that was not asked for."""
REMEMBERED_MAX: Final = 1000
"""Answers that a connection remembers of each type of resource, while the rules stay as they are."""
DEFINED: Final = tuple(sum(1 << operation for operation in OPERATIONS.get(kind, ())) for kind in sorted(ResourceType))
"""The operations that are reported, by the number of the type: hashing an enum's member takes longer than all the rest of a question."""
_JUDGED: Final = tuple(
    bits | (kind == ResourceType.CLUSTER) << Operation.DELETE for kind, bits in zip(sorted(ResourceType), DEFINED, strict=True)
)
"""Those that ACLs are asked about: to delete in the cluster, which an ACL of ALL alone allows, is to delete any topic, as in Kafka."""


_DENIALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


DENIED: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "The transactional id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
}
"""Kafka's words for them."""


def denial(resource_type: ResourceType) -> ErrorCode:
    """Returns the code with which an operation on such a resource is refused."""
    return _DENIALS[resource_type]


class Rights(Protocol):
    """The rights of one principal at one address."""

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """True when this one operation is allowed; a denial is in the audit log."""
        ...

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        """Returns the operations that are allowed on the resource, as a bit field. The audit log does not have it."""
        ...

    def may_anywhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        """True when there is a resource of that type with which the operation is allowed (KIP-679). The audit log does not have it."""
        ...

    @property
    def version(self) -> object:
        """Another object when the rules are others: what was allowed before is to be asked again."""
        ...


class Authorizer(Protocol):
    """The judge of what principals may do. ``is_configured`` says whether there are rules at all."""

    is_configured: bool

    def rights(self, principal: Principal, host: str) -> Rights:
        """Returns the rights of a connection: they follow changes of the rules."""
        ...


class AllowAll:
    """An authorizer without rules, under which all clients have all rights; super users always have them."""

    __slots__ = ()
    is_configured = False
    version = None

    def rights(self, principal: Principal, host: str) -> Rights:
        return self

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return bool(DEFINED[resource_type] >> operation & 1)

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        return DEFINED[resource_type]

    def may_anywhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        return True


class AclAuthorizer:
    """An authorizer that goes by the ACLs of the cluster (Kafka's StandardAuthorizer). Super users come from the node's own file."""

    is_configured = True

    def __init__(self, config: BrokerConfig, clock: Clock, images: CommittedImages) -> None:
        self._super_users = super_users(config["super.users"])
        self.images = images
        self.otherwise: bool = config["allow.everyone.if.no.acl.found"]
        self.audit = Audit(clock)
        self._anywhere: dict[tuple[Asker, int, int], bool] = {}  # what was found in these tables
        self._anywhere_tables = NO_ACLS

    @property
    def tables(self) -> AclTables:
        """The ACLs of the newest image."""
        return self.images.committed.acl_tables

    def rights(self, principal: Principal, host: str) -> Rights:
        if str(principal) in self._super_users:
            return SuperUser(self.audit, Asker.of(principal, host))
        return AclRights(self, Asker.of(principal, host))

    def allows_anywhere(self, asker: Asker, operation: Operation, resource_type: ResourceType) -> bool:
        """Answers as ``is_allowed_anywhere``, whose look at all ACLs of a principal is made once, however many connections and requests."""
        tables = self.tables
        if tables is not self._anywhere_tables or len(self._anywhere) >= REMEMBERED_MAX:
            self._anywhere_tables = tables
            self._anywhere.clear()
        key = asker, int(operation), int(resource_type)
        found = self._anywhere.get(key)
        if found is None:
            found = self._anywhere[key] = is_allowed_anywhere(tables, asker, operation, resource_type)
        return found


class SuperUser(AllowAll):
    """A principal that no ACL concerns."""

    __slots__ = ("_asker", "_audit")

    def __init__(self, audit: Audit, asker: Asker) -> None:
        self._audit = audit
        self._asker = asker

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self._audit.allowed_count += 1
        if LOG.is_wanted:
            self._audit.tell(self._asker, operation, resource_type, name)
        return super().may(operation, resource_type, name)


class AclRights:
    """The rights that ACLs give to one principal at one address. Answers are remembered as long as the image has the same ACLs."""

    __slots__ = ("_answers", "_asker", "_audit", "_authorizer", "_images", "_tables")

    def __init__(self, authorizer: AclAuthorizer, asker: Asker) -> None:
        self._authorizer = authorizer
        self._images = authorizer.images
        self._audit = authorizer.audit
        self._asker = asker
        self._tables = NO_ACLS
        self._answers = [_Answers(authorizer, asker, resource_type) for resource_type in sorted(ResourceType)]

    @property
    def version(self) -> object:
        return self._authorizer.tables

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if self._images.committed.acl_tables is not self._tables:
            self._forget()
        if self._answers[resource_type][name] >> operation & 1:
            self._audit.allowed_count += 1
            if LOG.is_wanted:
                self._audit.tell(self._asker, operation, resource_type, name)
            return True
        self._audit.deny(self._asker, operation, resource_type, name)
        return False

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        if self._images.committed.acl_tables is not self._tables:
            self._forget()
        return self._answers[resource_type][name]

    def _forget(self) -> None:
        self._tables = self._images.committed.acl_tables
        for answers in self._answers:
            answers.clear()

    def may_anywhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        if self.allowed(resource_type, _SOME_NAME) >> operation & 1:  # as Kafka: the operator's word where no ACL is
            return True
        return self._authorizer.allows_anywhere(self._asker, operation, resource_type)


class _Answers(dict[str, int]):
    """The remembered answers of one type of resource, by name. An unknown name is asked for, of the ACLs of the moment."""

    __slots__ = ("_asker", "_authorizer", "_resource_type")

    def __init__(self, authorizer: AclAuthorizer, asker: Asker, resource_type: ResourceType) -> None:
        self._authorizer = authorizer
        self._asker = asker
        self._resource_type = resource_type

    def __missing__(self, name: str) -> int:
        if len(self) >= REMEMBERED_MAX:
            self.clear()
        authorizer, resource_type = self._authorizer, self._resource_type
        bits = allowed_operations(authorizer.tables, self._asker, resource_type, name, otherwise=authorizer.otherwise)
        answer = self[name] = bits & _JUDGED[resource_type]
        return answer


_SOME_NAME: Final = "hardcode"
"""The name that Kafka asks for."""
