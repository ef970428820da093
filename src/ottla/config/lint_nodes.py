"""What differs between the files of a cluster's nodes, and has to be the same; and what is the same, and has to differ.

A node that counts other voters counts another majority: two controllers could be elected. No node finds that by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.lint import Finding, Severity
from ottla.types import Secret

VOTERS: Final = "controller.quorum.voters"
Files = Mapping[str, BrokerConfig]
Named = tuple[str, Finding]
_VOTER: Final = re.compile(r"(\d+)@(.+):(\d+)")
_EVERY_INTERFACE: Final = ("", "0.0.0.0", "[::]")
_THE_SAME: Final = (
    ("zookeeper.connect", Severity.ERROR, "these would be two clusters"),
    ("authorizer.class.name", Severity.ERROR, "a node without it lets everybody do everything"),
    ("delegation.token.secret.key", Severity.ERROR, "a token that one node signs is refused by another: set the same in all files"),
    ("super.users", Severity.WARNING, "who may do everything depends on the node that is asked"),
    ("min.insync.replicas", Severity.WARNING, "what acks=all promises depends on the node: set the same in all files"),
    ("unclean.leader.election.enable", Severity.WARNING, "which node is the controller decides whether records may be lost"),
    ("auto.create.topics.enable", Severity.WARNING, "which node is asked decides whether a topic is made"),
)
_OF_CONTROLLERS: Final = (("default.replication.factor", "a new topic has as many replicas as the active controller's file says"),)


def compare(files: Files) -> Iterator[Named]:
    """Yields the findings about several nodes, each with the file that it is about. What most files have is right; of equals, the first."""
    if len(files) < 2:
        return
    yield from _voters(files)
    yield from _twice(files, "node.id", lambda config: [str(config.node_id)] if config.has_node_id else [], "two nodes have one id")
    yield from _twice(files, "listeners", _addresses, "clients and nodes that want the one reach the other")
    for name, severity, why in _THE_SAME:
        yield from _other(files, name, severity, why)
    controllers = {file: config for file, config in files.items() if config["process.roles"] != ["broker"]}
    for name, why in _OF_CONTROLLERS:
        yield from _other(controllers, name, Severity.WARNING, why)


def _voters(files: Files) -> Iterator[Named]:
    """Compares the lists. Ids and ports have to be the same; a host may have two names."""
    lists = {file: voters_of(config[VOTERS]) for file, config in files.items() if config[VOTERS]}
    usual = _usual({file: _ports(voters) for file, voters in lists.items()})
    alike = {file: _text(voters) for file, voters in lists.items() if _ports(voters) == usual}
    right, named = next(iter(alike.items()), ("", "")), _usual(alike)
    for file, voters in lists.items():
        if file not in alike and _moves(files, voters, lists[right[0]]):
            text = f"{_text(voters)} here, and {right[1]} in {right[0]}: right while controllers move from one listener to another"
            yield file, Finding(VOTERS, Severity.WARNING, text)
        elif file not in alike:
            text = f"{_text(voters)} here, and {right[1]} in {right[0]}: nodes with different lists count different majorities"
            yield file, Finding(VOTERS, Severity.ERROR, f"{text}, or do not reach each other; write the same in all files")
        elif alike[file] != named:
            other = next(one for one, text in alike.items() if text == named)
            text = f"{alike[file]} here, and {named} in {other}: see that the names are of the same machines"
            yield file, Finding(VOTERS, Severity.WARNING, text)


def voters_of(listed: Iterable[str]) -> dict[int, tuple[str, int]]:
    """Returns host and port of each voter that can be read, by id."""
    found = (_VOTER.fullmatch(text.strip()) for text in listed)
    return {int(voter[1]): (voter[2], int(voter[3])) for voter in found if voter is not None}


def _ports(voters: Mapping[int, tuple[str, int]]) -> frozenset[tuple[int, int]]:
    return frozenset((node, port) for node, (_, port) in voters.items())


def _text(voters: Mapping[int, tuple[str, int]]) -> str:
    return ",".join(f"{node}@{host}:{port}" for node, (host, port) in sorted(voters.items()))


def _addresses(config: BrokerConfig) -> list[str]:
    """Returns the addresses at which others reach the node, as far as the file has them; those that are advertised count."""
    found = {}
    for text in (*config["listeners"], *(config["advertised.listeners"] or ())):
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        if port not in ("", "0"):
            found[name.upper()] = None if host in _EVERY_INTERFACE else address.lower()
    return [address for address in found.values() if address is not None]


def _moves(files: Files, here: Mapping[int, tuple[str, int]], there: Mapping[int, tuple[str, int]]) -> bool:
    """Returns whether both name the same voters, each at a listener that its own file has."""
    return here.keys() == there.keys() and all(_listens(files, node, port) for node, (_, port) in here.items())


def _listens(files: Files, node: int, port: int) -> bool:
    """Returns whether the node's file is there, and has a listener of that port."""
    configs = [config for config in files.values() if config.has_node_id and config.node_id == node]
    listed = {text.rpartition(":")[2] for config in configs for text in (*config["listeners"], *(config["advertised.listeners"] or ()))}
    return str(port) in listed


def _twice(files: Files, name: str, values: Callable[[BrokerConfig], Iterable[str]], why: str) -> Iterator[Named]:
    first: dict[str, str] = {}
    for file, config in files.items():
        for value in dict.fromkeys(values(config)):
            if first.setdefault(value, file) != file:
                yield file, Finding(name, Severity.ERROR, f"{value} is in {first[value]}, too: {why}")


def _other(files: Files, name: str, severity: Severity, why: str) -> Iterator[Named]:
    """Yields a finding for each file whose value is not that of most files. A secret is not shown."""
    values = {file: _value(config[name]) for file, config in files.items()}
    usual = _usual(values)
    for file, value in values.items():
        if value != usual:
            right = next(other for other, found in values.items() if found == usual)
            is_secret = isinstance(files[file][name], Secret) or isinstance(files[right][name], Secret)
            here, there = ("another secret" if value else "no secret", "a secret" if usual else "none") if is_secret else (value, usual)
            yield file, Finding(name, severity, f"{here or 'nothing'} here, and {there or 'nothing'} in {right}: {why}")


def _value(value: object) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(sorted(map(str, value))) if isinstance(value, (list, tuple)) else "" if value is None else str(value)


def _usual(values: Mapping[str, object]) -> object:
    """Returns the value of most files; of equals that of the first one, and None without files."""
    return Counter(values.values()).most_common(1)[0][0] if values else None
