#!/usr/bin/env python3
"""Writes the reference pages of the documentation, docs/reference/*.md, from the code.

``make reference`` writes them; ``python scripts/reference.py --check`` changes nothing, and ends with 1 where a page and the code differ.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import logging
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import structlog
from library_pages import library_page, testing_page
from page_parts import block, code, declaration, doc, page, table

from ottla import aio, spark
from ottla.admin_http.exposition import Family
from ottla.admin_http.pages import METRICS_PAGES
from ottla.admin_http.server import AdminPages
from ottla.broker.node import Broker
from ottla.broker.tasks.slices import Slices
from ottla.cli.config import in_force
from ottla.cli.main import cli
from ottla.cli.output import way_out
from ottla.cli.record_format import LANGUAGE
from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey
from ottla.config.definition import DOUBLE_MAX, INT_MAX, LONG_MAX
from ottla.errors import RETRIABLE, ErrorCode, KafkaError
from ottla.runtime.clock import SystemClock
from ottla.runtime.world import real_world
from ottla.spark import options as spark_options
from ottla.storage.config import LogConfig

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ROOT / "docs" / "reference"
SOURCE: Final = ROOT / "src" / "ottla"
WIDTH: Final = 100

# -- commands


def commands(command: click.Command, path: tuple[str, ...], parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The words of each command, and the help that it prints."""
    with click.Context(command, info_name=path[-1], parent=parent, terminal_width=WIDTH, max_content_width=WIDTH) as context:
        yield " ".join(path), command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None, "a group has the commands that it lists"
                yield from commands(found, (*path, name), context)


def commands_page() -> str:
    lead = (
        "Each command prints its part of this page with `--help`. Exit codes: 0 done; 1 something failed, and an error names\n"
        "its cause and a way out; 2 the call itself was wrong; 3 a pipeline may not continue from its checkpoint."
    )
    parts = [f"## {words}\n\n```\n{text}\n```\n" for words, text in commands(cli, ("ottla",))]
    return "\n".join([page("Commands", lead), *parts])


def formats_page() -> str:
    lead = "How records are written on lines (`-f` of `ottla consume` and `ottla produce`), and how commands answer to programs."
    reporting = [
        words
        for words, command in leaves(cli, ("ottla",))
        if any("--format" in parameter.opts and "json" in getattr(parameter.type, "choices", ()) for parameter in command.params)
    ]
    json_output = (
        "`--format json` (and `--json`, which means the same) prints one document on standard output; all else is on standard error:\n\n"
        '```\n{"_command": "topic list", "_version": 1, "items": [{"name": "orders", "partitions": 3, "replicas": 1}]}\n```\n\n'
        "`items` is always a list, of one item where a command is about one thing. Where a command prints a table, the fields of an item\n"
        "are its columns, in small letters with `_` for `-`; what is `-` there is null. `_version` counts up when a field goes, or means\n"
        "another thing.\n"
        "`ottla dev` and `ottla cluster start`, which go on, print a line of JSON once clients are served: an object with `bootstrap`.\n\n"
        f"These commands have it: {', '.join(map(code, reporting))}.\n"
    )
    codes = table(
        ["exit code", "meaning"],
        [
            ["0", "done"],
            ["1", "something failed, also one item of many; a plan was shown and not applied; a check found something"],
            ["2", "the call itself was wrong"],
            ["3", "a query of a pipeline may not continue from its checkpoint"],
            ["130", "Ctrl-C"],
        ],
    )
    parts = [f"## Records\n\n```\n{LANGUAGE}```\n", f"## JSON output\n\n{json_output}", f"## Exit codes\n\n{codes}"]
    return "\n".join([page("Formats", lead), *parts])


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """The words of each command that is no group."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, "a group has the commands that it lists"
            yield from leaves(found, (*path, name))
    else:
        yield " ".join(path), command


def spark_page() -> str:
    lead = (
        'Options of `format("ottla")`, of `to_topic` and of `sink`. One that is not in the table is refused, with the nearest known name.\n'
        'Offsets are written `{"topic": {"partition": offset}}`.'
    )
    return f"{page('Spark options', lead)}\n{spark_options.markdown()}"


def pipelines_page() -> str:
    lead = (
        "The public names of `ottla.spark`, for pipelines and for any other program of PySpark. [Pipelines](../pipelines.md) and\n"
        "[Spark](../spark.md) show their use, [Spark options](spark.md) what `options` may have. `bootstrap` names the brokers,\n"
        "as `host:port` with commas between them. `ottla pipeline` gives its own; elsewhere it is needed, and no environment\n"
        "variable is read for it."
    )
    parts = [page("Pipelines: ottla.spark", lead)]
    for name in spark.__all__:
        found = getattr(spark, name)
        parts.append(f"## {name}\n\n{block(declaration(name, found))}\n{doc(found)}\n")
    return "\n".join(parts)


# -- configuration


def bounds(key: ConfigKey) -> str:
    if key.choices is not None:
        return ", ".join(code(choice) if choice else "empty" for choice in key.choices)
    has_low = key.low is not None and key.low > -INT_MAX
    has_high = key.high is not None and key.high not in (INT_MAX, LONG_MAX, DOUBLE_MAX)
    if has_low and has_high:
        return f"{key.low} to {key.high}"
    return f"at least {key.low}" if has_low else f"at most {key.high}" if has_high else ""


def effect(key: ConfigKey) -> str:
    if key.without_effect:
        return f"none: {key.without_effect}"
    return "" if key.harmless is None else "refused, but for what protects nothing"


def keys_of(title: str, keys: Mapping[str, ConfigKey], *, changes: bool) -> str:
    head = ["key", "type", "default", "values", *(["changes"] if changes else []), "what it says", "effect here"]
    rows, defaults = [], BrokerConfig({})
    for name, key in sorted(keys.items()):
        scope = [key.scope.value] if changes else []
        shown = "hidden" if key.is_sensitive and key.default is not None else in_force(key, defaults)
        default = f"that of `{key.broker_key}`" if key.broker_key else code("" if shown is None else shown)
        rows.append([code(name), key.type.name.lower(), default, bounds(key), *scope, key.doc, effect(key)])
    return f"## {title}\n\n{table(head, rows)}"


def configuration_page() -> str:
    lead = (
        "Every key of Kafka 4.3 is known, and those of ottla's own begin with `ottla.`. What has no effect here says so.\n"
        "`changes` is the scope in which a broker's key changes while the broker runs; `default` is the value in force where nothing\n"
        "is set, also where another key has it."
    )
    parts = [
        keys_of("Brokers and controllers", BROKER_KEYS, changes=True),
        keys_of("Topics", TOPIC_KEYS, changes=False),
        keys_of("Groups", GROUP_KEYS, changes=False),
        keys_of("Client metrics", CLIENT_METRICS_KEYS, changes=False),
    ]
    return "\n".join([page("Configuration keys", lead), *parts])


# -- metrics


async def metrics() -> dict[str, Sequence[Family]]:
    """Each page of a broker with a topic, by its path, also the families that have no samples there."""
    with tempfile.TemporaryDirectory() as directory:
        node = Broker(real_world(), BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}))
        await node.start()
        try:
            host, port = node.addresses["PLAINTEXT"]
            async with aio.Admin(f"{host}:{port}") as admin:
                await admin.create_topics([aio.NewTopic("orders", 1)])
            pages, slices = AdminPages(node), Slices(SystemClock())
            return {path: await pages.families(path, slices) for path in METRICS_PAGES}
        finally:
            await node.stop()


UNITS: Final = (
    ("byte_rate", "bytes a second"), ("percent", "share, 0 to 1"), ("isactivecontroller", "0 or 1"), ("timestamp", "ms"), ("seconds", "s"),
    ("bytes", "bytes"), ("timems_count", "count"), ("timems", "ms"), ("time_ms", "ms"), ("time_max", "ms"), ("log_log_size", "bytes"),
    ("queuesize", "entries"), ("offset_sum", "offsets"), ("offset", "offset"),
    ("watermark", "offset"), ("lag", "records"), ("messages", "records"),
    ("current_leader", "node id"), ("partition_leader", "node id"), ("epoch", "epoch"),
)  # fmt: skip
"""By what a name has in it, the first that fits; else things are counted."""


def metrics_page() -> str:
    lead = (
        "What a broker shows on the pages of its admin listener (`ottla.admin.listener`), in Prometheus' format and under the names that\n"
        "dashboards for Kafka read. These are all.\n"
        "One with labels is there once it has something to count: a request, a group, a reassignment.\n"
        "A histogram has `_bucket`, `_sum` and `_count`.\n"
        "`ottla generate alert-rules` says which of them are alarming, and from what value on."
    )
    parts = [page("Metrics", lead)]
    for path, families in asyncio.run(metrics()).items():
        rows = []
        for family in sorted(families):
            labels = dict.fromkeys((*family.labels, *(label for sample in family.samples for label, _ in sample.labels)))
            unit = next((unit for part, unit in UNITS if part in family.name and not family.name.endswith("isr")), "count")
            shown = ", ".join(code(label) for label in labels)
            rows.append([code(family.name), family.type, unit, shown, family.text])
        parts.append(f"## {path}\n\n{table(['metric', 'type', 'unit', 'labels', 'what it says'], rows)}")
    return "\n".join(parts)


# -- errors


def errors_page() -> str:
    lead = (
        "Kafka's error codes, as clients and commands name them. A client that has time left repeats what failed with a retriable one.\n"
        "`messages` has those of ottla's nodes, at most four of a code; `…` is what differs from case to case. The message of an\n"
        "error, which follows its code, says more than this table. What ottla's own clients say is [below](#what-clients-say)."
    )
    messages = causes(ANSWERING, CAUSES_MAX)
    rows = (
        [
            str(found.value),
            code(found.name),
            "yes" if found in RETRIABLE else "",
            meanings()[found.name][0],
            what_to_do(found),
            "; ".join(messages.get(found.name, [])),
        ]
        for found in sorted(ErrorCode)
    )
    said = causes(CLIENTS, CLIENT_CAUSES_MAX)
    below = (
        "\n## What clients say\n\nThe messages of errors that the clients of `ottla.aio` and `ottla.sync`\n"
        "raise without having asked a broker, or since none has answered; at most ten of a code.\n"
    )
    own = ([code(found.name), "; ".join(said[found.name])] for found in sorted(ErrorCode) if found.name in said)
    first = table(["code", "name", "retriable", "why", "what to do", "messages"], rows)
    return "\n".join([page("Error codes", lead), first, below, table(["name", "messages"], own)])


ANSWERING: Final = ("broker", "controller", "groups", "transactions", "security", "storage", "quotas.py", "config", "types.py")
"""The packages whose errors nodes answer with."""
CAUSES_MAX: Final = 4
CLIENTS: Final = ("client", "sync", "aio.py")
CLIENT_CAUSES_MAX: Final = 10


def causes(packages: Sequence[str], count_max: int) -> dict[str, list[str]]:
    """Returns the messages of each code in these packages, so many of the shortest ones, as the source has them."""
    found: dict[str, set[str]] = {}
    for name in packages:
        place = SOURCE / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    for error, texts in raised_in(function):
                        found.setdefault(error, set()).update(filter(None, texts))
    return {error: sorted(texts, key=lambda text: (len(text), text))[:count_max] for error, texts in found.items() if texts}


def raised_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, list[str]]]:
    """Yields each code that the function makes an error of, with its messages; one may have a name before."""
    named: dict[str, list[str]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                named.setdefault(name, []).append(message_of(value))
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(id="KafkaError"), args=[ast.Attribute(value=ast.Name(id="ErrorCode"), attr=error), message, *_]):
                yield error, named.get(message.id, []) if isinstance(message, ast.Name) else [message_of(message)]


def message_of(node: ast.expr) -> str:
    """Returns the text of a message, with … for what is filled in; empty for one that is made elsewhere, or says nothing by itself."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            text = "".join(part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "…" for part in values)
            return text if len(re.findall(r"[a-z]{2,}", text)) > 1 else ""
    return ""


def what_to_do(error: ErrorCode) -> str:
    return way_out(KafkaError(error, "")).removeprefix("; ") or meanings()[error.name][1]


@functools.cache
def meanings() -> dict[str, tuple[str, str]]:
    """Returns what each code means, and what an application does where commands have nothing to add, by its name."""
    lines = (Path(__file__).parent / "error_codes.tsv").read_text(encoding="utf-8").splitlines()
    cells = (line.split("\t") for line in lines if not line.startswith("#"))
    found = {name: (meaning, "".join(rest)) for name, meaning, *rest in cells}
    assert found.keys() == ErrorCode.__members__.keys(), "each is a code, and each code is there"
    return found


# -- the code itself


def files_page() -> str:
    lead = (
        "To find a file by what it is about: the first sentence of each file of `src/ottla`, directory by directory, and at the end\n"
        "the files that read each configuration key. [ARCHITECTURE.md](../../ARCHITECTURE.md) says how they work together."
    )
    parts = [page("The files", lead)]
    for directory in sorted({path.parent for path in SOURCE.rglob("*.py")}):
        files = sorted(path for path in directory.glob("*.py") if path.name != "__init__.py")
        name = directory.relative_to(SOURCE.parent).as_posix()
        parts.append(f"## {name}\n\n{subject(directory / '__init__.py')}\n")
        if files:
            parts.append(table(["file", "what it has"], ([code(path.name), subject(path)] for path in files)))
    parts.append("## Configuration keys, and the files that read them\n")
    parts.append("Paths are below `src/ottla/`; type, default and bounds of each key are in `config/keys/`.\n")
    return "\n".join([*parts, table(["key", "files"], readers_of_keys())])


def readers_of_keys() -> Iterator[list[str]]:
    names: dict[str, list[str]] = {key.name: [] for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values(), *GROUP_KEYS.values())}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith("config/keys/"):
            for key in {found for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if (found := key_read(node)) in names}:
                names[key].append(code(name))
    for topic_key in TOPIC_KEYS.values():
        if topic_key.broker_key in names and names[topic_key.name]:
            names[topic_key.broker_key].append(f"as the default of {code(topic_key.name)}")
    for key, files in sorted(names.items()):
        if files:
            yield [code(key), ", ".join(files)]


def key_read(node: ast.AST) -> str:
    """Returns the key that the expression is perhaps the name of, or the value of, in a log's configuration."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Attribute(value=ast.Name(id="config") | ast.Attribute(attr="config" | "_config"), attr=field):
            return field.replace("_", ".") if field in LogConfig.__dataclass_fields__ else ""
    return ""


def subject(path: Path) -> str:
    """Returns the first paragraph of the module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.sub(r"``([^`]+)``", r"`\1`", " ".join(text.split("\n\n")[0].split()))


PAGE_MAKERS: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands_page,
    "formats.md": formats_page,
    "spark.md": spark_page,
    "pipelines.md": pipelines_page,
    "testing.md": testing_page,
    "configuration.md": configuration_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
    "library.md": library_page,
    "files.md": files_page,
}


def main(arguments: list[str]) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    PAGES.mkdir(exist_ok=True)
    differing = []
    for name, make in PAGE_MAKERS.items():
        path, text = PAGES / name, make().rstrip("\n") + "\n"
        if not path.exists() or path.read_text() != text:
            differing.append(name)
            if "--check" not in arguments:
                path.write_text(text)
    for name in differing:
        print(f"docs/reference/{name} {'differs from the code: run make reference' if '--check' in arguments else 'is written'}")
    return 1 if differing and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
