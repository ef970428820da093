"""The three APIs of ACLs, and what becomes of what they record."""

from __future__ import annotations

import asyncio

from tests.broker.principals import ASK_MS, connected, with_secured

from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation, Permission, ResourceType
from ottla.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run


def test_without_an_authorizer_acls_are_refused() -> None:
    """They would be believed to protect something."""

    async def main() -> None:
        broker = SimBroker(Simulation(1))
        await broker.start()
        connection = await connected(broker.client("anybody"))
        creation = AclCreation(ResourceType.TOPIC, "t", 3, "User:alice", "*", Operation.READ, Permission.ALLOW)
        created = await connection.ask(CreateAclsRequest([creation]), CreateAclsResponse, timeout_ms=ASK_MS)
        described = await connection.ask(DescribeAclsRequest(2, None, 1, None, None, 1, 1), DescribeAclsResponse, timeout_ms=ASK_MS)
        wanted = DeleteAclsFilter(2, None, 1, None, None, 1, 1)
        deleted = await connection.ask(DeleteAclsRequest([wanted]), DeleteAclsResponse, timeout_ms=ASK_MS)
        codes = [created.results[0].error_code, described.error_code, deleted.filter_results[0].error_code]
        assert codes == [ErrorCode.SECURITY_DISABLED] * 3
        assert broker.broker is not None
        assert broker.broker.image.acls == {}

    run(asyncio.wait_for(main(), 600))


def test_acls_are_listed_by_resource_and_what_is_none_is_refused_alone() -> None:
    async def body(broker: SimBroker, admin: Cluster) -> None:
        good = AclCreation(ResourceType.TOPIC, "t", 3, "User:alice", "*", Operation.READ, Permission.ALLOW)
        bad = AclCreation(ResourceType.ANY, "t", 3, "User:alice", "*", Operation.READ, Permission.ALLOW)
        other = AclCreation(ResourceType.TOPIC, "t", 3, "User:bob", "10.0.0.1", Operation.ALL, Permission.DENY)
        created = await admin.ask(None, CreateAclsRequest([good, bad, other, good]), CreateAclsResponse)
        assert [result.error_code for result in created.results] == [0, ErrorCode.INVALID_REQUEST, 0, 0]
        listed = await admin.ask(None, DescribeAclsRequest(1, None, 1, None, None, 1, 1), DescribeAclsResponse)
        [resource] = listed.resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "t", 3)
        assert sorted((acl.principal, acl.host, acl.operation, acl.permission_type) for acl in resource.acls) == [
            ("User:alice", "*", 3, 3), ("User:bob", "10.0.0.1", 2, 2),
        ]  # fmt: skip
        wrong = await admin.ask(None, DescribeAclsRequest(0, None, 1, None, None, 1, 1), DescribeAclsResponse)
        assert (wrong.error_code, wrong.resources) == (ErrorCode.INVALID_REQUEST, [])
        filters = [DeleteAclsFilter(2, "t", 2, name, None, 1, 1) for name in ("User:alice", "User:alice", "User:nobody")]
        deleted = await admin.ask(None, DeleteAclsRequest([*filters, DeleteAclsFilter(2, "t", 99, None, None, 1, 1)]), DeleteAclsResponse)
        counts = [(result.error_code, len(result.matching_acls)) for result in deleted.filter_results]
        assert counts == [(0, 1), (0, 1), (0, 0), (ErrorCode.INVALID_REQUEST, 0)]
        many = CreateAclsRequest([AclCreation(2, f"t{n}", 3, "User:a", "*", 3, 3) for n in range(10_001)])
        answer = await admin.ask(None, many, CreateAclsResponse)
        assert {result.error_code for result in answer.results} == {ErrorCode.POLICY_VIOLATION}
        assert broker.broker is not None
        assert len(broker.broker.image.acls) == 1

    with_secured(body)
