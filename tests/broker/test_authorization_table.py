"""Every API asks what the table of rights says, refuses who has none, and does not tell what exists."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any, Final

import structlog
from tests.broker.asked_requests import request_of
from tests.broker.principals import ASK_MS, SECURED, connected, fill_as_admin, known_by_host, secured
from tests.simulation.quorum_nodes import CONTROLLER_PORT, NODES, QuorumNode, started

from ottla.broker.authorization import AllowAll, Rights
from ottla.broker.handlers import SERVICES
from ottla.broker.requests.service import Asks, Service
from ottla.broker.roles import Role
from ottla.client.admin import Admin, NewTopic
from ottla.client.connection import ClientConnection
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.registry import Api
from ottla.security.principal import Principal
from ottla.sim.cluster import PORT, SimBroker, SimClient, Simulation
from ottla.sim.loop import run

GOLDEN: Final = Path(__file__).parent / "golden"
BY_ID: Final = {"Produce": 13, "Fetch": 13, "OffsetCommit": 10, "OffsetFetch": 10}
"""APIs whose topics go by ids from that version on: an id is no secret, and one that nothing has is answered as such."""


class Recorder(AllowAll):
    """An authorizer that allows everything, or nothing, and knows what it was asked."""

    is_configured = True

    def __init__(self, *, allows: bool) -> None:
        self._allows = allows
        self.questions: dict[str, None] = {}

    def rights(self, principal: Principal, host: str) -> Rights:
        return self

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.questions[f"{operation.name} {resource_type.name} {name}"] = None
        return self._allows

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        self.questions[f"? {resource_type.name} {name}"] = None
        return super().allowed(resource_type, name) if self._allows else 0

    def may_anywhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        self.questions[f"{operation.name} any {resource_type.name}"] = None
        return self._allows

    def shown(self) -> str:
        """What it was asked since the last time, each question once."""
        found, self.questions = ", ".join(self.questions), {}
        return found


async def answer(connection: ClientConnection, api: Api, version: int, name: str, topic_id: bytes) -> str:
    """What the API says to a request that names this, in words."""
    response = await connection.ask(request_of(api, version, name, topic_id), api.response, timeout_ms=ASK_MS, version_max=version)
    return re.sub(r"<memory at 0x\w+>", "RECORDS", repr(response))


def check_golden(name: str, lines: list[str]) -> None:
    """The lines are those of the file; it is written anew with OTTLA_WRITE_GOLDEN in the environment, to be read again."""
    text = "\n".join(lines) + "\n"
    if os.environ.get("OTTLA_WRITE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def asked_services(role: Role) -> list[Service]:
    return [service for service in SERVICES[role].values() if service.needs is not Asks.NOBODY]


def test_every_api_refuses_who_has_no_rights_and_does_not_tell_what_exists() -> None:
    """The golden file has, of the lowest and the highest version of each API, what is asked, and what is answered."""

    async def main() -> None:
        broker, admin = await secured()
        assert broker.broker is not None
        assert await Admin(admin).create_topics([NewTopic("there", 1)]) == {"there": None}
        await fill_as_admin(admin, "there")
        topic_id = broker.broker.image.topics["there"].topic_id
        recorder = Recorder(allows=False)
        introduce_all(broker, recorder)
        stranger = await connected(broker.client("stranger"))
        before = broker.broker.image
        for service in asked_services(Role.BROKER):
            api = service.api
            for version in sorted({api.version_min, api.version_max}):
                recorder.shown()
                found = await answer(stranger, api, version, "there", topic_id)
                lines.append(f"{api.name} v{version}: {recorder.shown()}")
                shown = found.replace(repr(topic_id), "ID").replace(f"'{broker.broker.cluster_id}'", "CLUSTER")
                lines.append(f"    {shown}")
                if version < BY_ID.get(api.name, 99):
                    absent = await answer(stranger, api, version, "absen", topic_id)
                    assert absent.replace("absen", "there") == found, f"{api.name} v{version}"
        assert broker.broker.image is before, "nothing was changed"

    lines: list[str] = []
    with known_by_host():
        run(asyncio.wait_for(main(), 600))
    check_golden("refused.txt", lines)


def test_every_api_asks_what_the_table_says() -> None:
    """The golden file has all questions of a request whose principal may do everything."""

    async def main() -> None:
        broker, admin = await secured()
        recorder = Recorder(allows=True)
        introduce_all(broker, recorder)
        connection = await connected(broker.client("anybody"))
        assert broker.broker is not None
        for at, service in enumerate(asked_services(Role.BROKER)):
            name, api = f"t{at}", service.api
            assert await Admin(admin).create_topics([NewTopic(name, 1)]) == {name: None}
            topic_id = broker.broker.image.topics[name].topic_id
            for version in sorted({api.version_min, api.version_max}):
                recorder.shown()
                await answer(connection, api, version, name, topic_id)
                lines.append(f"{api.name} v{version}: {recorder.shown().replace(name, 'NAME')}")

    lines: list[str] = []
    with known_by_host():
        run(asyncio.wait_for(main(), 600))
    check_golden("asked.txt", lines)


def introduce_all(broker: SimBroker, rights: Rights) -> None:
    """Who connects from now on has these rights."""
    assert broker.broker is not None
    router: Any = broker.broker.router
    router.introduce = lambda connection, principal: setattr(connection, "rights", rights)


def test_controllers_listeners_and_what_brokers_pass_on_are_judged_alike() -> None:
    """A stranger gets nothing from the controllers' listener, and from a broker that passes requests on what the controller says."""

    async def main() -> None:
        simulation = Simulation(3)
        super_users = ";".join(["User:admin", *(f"User:node-{node}" for node in range(1, NODES + 1))])
        nodes = [QuorumNode(simulation, node, SECURED | {"super.users": super_users}) for node in range(1, NODES + 1)]
        with known_by_host():
            for node in nodes:
                await node.format()
                node.begin()
            await started(nodes)
            [active] = [node for node in nodes if node.broker is not None and node.broker.controller.is_active]
            other = next(node for node in nodes if node is not active)
            admin = SimClient(simulation, "admin", active.bootstrap)
            assert await admin.machine.run(created(admin, "there")) == {"there": None}
            assert active.broker is not None
            topic_id = active.broker.image.topics["there"].topic_id
            stranger = SimClient(simulation, "stranger", active.bootstrap)
            await stranger.machine.run(ask_all(stranger, active, other, topic_id))

    async def created(client: SimClient, name: str) -> Any:
        return await Admin(client.cluster()).create_topics([NewTopic(name, 1)])

    async def ask_all(client: SimClient, active: QuorumNode, other: QuorumNode, topic_id: bytes) -> None:
        world = client._world
        at_controller, directly, passed_on = [
            await ClientConnection.connect(world, node.machine.name, port, client_id="s", timeout_ms=ASK_MS)
            for node, port in ((active, CONTROLLER_PORT), (active, PORT), (other, PORT))
        ]
        assert active.broker is not None
        before = active.broker.image
        for service in asked_services(Role.CONTROLLER):
            api = service.api
            for version in sorted({api.version_min, api.version_max}):
                found = await answer(at_controller, api, version, "there", topic_id)
                lines.append(f"{api.name} v{version}: {found.replace(repr(topic_id), 'ID')}")
        assert active.broker.image is before
        for service in asked_services(Role.BROKER):
            if service.is_forwarded:
                api = service.api
                asked = [await answer(one, api, api.version_max, "there", topic_id) for one in (directly, passed_on)]
                assert asked[0] == asked[1], api.name
                compared.append(api.name)

    lines: list[str] = []
    compared: list[str] = []
    run(asyncio.wait_for(main(), 600))
    assert {"CreateAcls", "DeleteTopics", "IncrementalAlterConfigs", "ElectLeaders"} < set(compared)
    check_golden("controllers.txt", lines)


def test_nodes_without_rights_say_so_and_name_the_way_out() -> None:
    async def main() -> None:
        simulation = Simulation(3)
        nodes = [QuorumNode(simulation, node, SECURED) for node in range(1, NODES + 1)]
        for node in nodes:
            await node.format()
            node.begin()
        await asyncio.sleep(10)  # simulated: they would long serve
        assert all(node.broker is None for node in nodes), "none of them serves"

    with known_by_host(), structlog.testing.capture_logs() as logs:
        run(asyncio.wait_for(main(), 600))
    refused = [dict(line) for line in logs if line["event"] == "node_refused"]
    assert {line["api"] for line in refused} == {"Fetch"}
    assert "super.users" in refused[0]["way_out"]
    assert len(refused) <= NODES * NODES, "once a connection"
