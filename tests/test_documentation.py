"""The documentation is what the code is: the reference, the list of pages, and the check of the built site."""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from tests.test_repository import tracked_files

from ottla import aio

ROOT = Path(__file__).parent.parent
SECONDS_MAX = 120


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """scripts/site.py."""
    spec = importlib.util.spec_from_file_location("documentation_site", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


OF_PYTHON = {
    "AbstractAsyncContextManager", "AbstractContextManager", "Any", "AsyncIterator", "Callable", "False", "Iterable", "Literal",
    "Mapping", "None", "Self",
    "Sequence", "True",
}  # fmt: skip


def undefined_types(text: str) -> set[str]:
    """The types that the page names, in what it declares and in the second column of tables, and that have no entry."""
    declared = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    columns = re.findall(r"^\| `\w+` \| `(.*?)` \|", text, re.MULTILINE)
    named = re.findall(r"(?<![\w.])[A-Z]\w+", re.sub(r"'[^']*'|\"[^\"]*\"", "", "\n".join([*declared, *columns])))
    return {name for name in named if name not in OF_PYTHON and not re.search(rf"^###? {name}$", text, re.MULTILINE)}


LIBRARY = ROOT / "docs" / "reference" / "library.md"


def test_every_type_that_the_reference_of_the_client_names_has_an_entry() -> None:
    assert not undefined_types(LIBRARY.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["HeadersLike", "Permission", "KafkaError", "Secret", "OnConnectivity", "ConfigSynonym"])
def test_a_type_without_an_entry_is_found(name: str) -> None:
    """In an argument, a field, a result, a setting, and in what another type stands for."""
    assert undefined_types(LIBRARY.read_text(encoding="utf-8").replace(f"\n### {name}\n", f"\n### Another{name}\n")) == {name}


def test_every_name_of_the_client_has_an_entry_that_says_something() -> None:
    text = LIBRARY.read_text(encoding="utf-8")
    entries = dict(re.findall(r"^##+ (\w+)\n\n(.*?)(?=^## |^### |\Z)", text, re.MULTILINE | re.DOTALL))
    assert not set(aio.__all__) - entries.keys()
    silent = {
        name
        for name in aio.__all__
        if not re.search(r"^[A-Z`*].*[.:]$", re.sub(r"```.*?```", "", entries[name], flags=re.DOTALL), re.MULTILINE)
    }
    assert not silent
    assert "(self" not in text
    assert not re.search(r"^\w+\(\w+: '", text, re.MULTILINE), "the repr that a dataclass has for a docstring"


def library_entry(heading: str) -> str:
    """The text of one entry."""
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", LIBRARY.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def rows_of(entry: str) -> dict[str, list[str]]:
    """The other cells of each row, by the name in its first one."""
    cells = [re.split(r"(?<!\\\\) \| ", line.strip("| ").replace("| |", "|  |")) for line in entry.splitlines() if line.startswith("| `")]
    return {name.strip("`"): others for name, *others in cells}


def described() -> list[str]:
    """The data classes and enums whose fields and members have rows."""
    kinds = {name: getattr(aio, name) for name in aio.__all__ if isinstance(getattr(aio, name), type)}
    with_fields = {name for name, kind in kinds.items() if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")}
    structs = {name for name, kind in kinds.items() if issubclass(kind, msgspec.Struct)}
    enums = {name for name, kind in kinds.items() if issubclass(kind, enum.Enum)} - {"ErrorCode"}
    return sorted(with_fields | structs | enums)


@pytest.mark.parametrize("name", described())
def test_the_reference_says_what_each_field_and_member_means(name: str) -> None:
    kind = getattr(aio, name)
    named = [*kind.__members__] if issubclass(kind, enum.Enum) else list(kind.__annotations__)
    rows = rows_of(library_entry(name))
    assert set(named) <= rows.keys()
    assert not [each for each, (*_, meaning) in rows.items() if not re.search(r"[.:]$", meaning)]


def test_the_list_of_data_classes_has_records_results_and_groups() -> None:
    wanted = {"ConsumerRecord", "RecordMetadata", "OffsetAndMetadata", "FoundOffset", "GroupDescription", "TopicPartition", "Operation"}
    assert wanted <= set(described())


@pytest.mark.parametrize("of", ["all clients", "producers", "consumers", "administration"])
def test_the_reference_has_the_bounds_and_units_of_each_number_among_the_settings(of: str) -> None:
    rows = rows_of(library_entry(f"Settings of {of}"))
    numbers = {name: cells for name, cells in rows.items() if cells[0] == "`int`"}
    assert numbers
    for name, (_, default, values, _) in numbers.items():
        unit = " ms" if name.endswith("_ms") else "" if name == "max_poll_records" else " bytes"
        assert re.fullmatch(rf"`\d+`{unit}", default), name
        assert re.fullmatch(rf"from \d+( to \d+)?{unit}", values), name


def test_the_reference_has_the_bounds_that_the_settings_have() -> None:
    assert rows_of(library_entry("Settings of consumers"))["max_poll_records"][2] == "from 1"
    assert rows_of(library_entry("Settings of producers"))["metadata_max_idle_ms"][2] == "from 5000 ms"
    assert rows_of(library_entry("Settings of producers"))["buffer_memory"][2] == f"from 0 to {2**63 - 1} bytes"
    assert "`zstd`" in rows_of(library_entry("Settings of producers"))["compression_type"][2]


@pytest.mark.parametrize(
    ("heading", "calls"),
    [
        ("Producer.flush", "Sync: `producer.flush()`, asyncio: `await producer.flush()`."),
        ("Consumer.seek", "Sync and asyncio: `consumer.seek(...)`, without `await`."),
        ("Producer.send", "Sync: `future = producer.send(...)`, then `future.result()`; asyncio: `future = await producer.send(...)`"),
        ("Producer.send", ") -> concurrent.futures.Future[RecordMetadata]  # ottla.aio: asyncio.Future[RecordMetadata]"),
        ("Producer.transaction", "Sync: `with producer.transaction():`, asyncio: `async with producer.transaction():`."),
        ("Consumer: for and async for", "for record in consumer:  # ottla.sync\nasync for record in consumer:  # ottla.aio"),
    ],
)
def test_the_reference_shows_how_a_method_is_called_in_either_module(heading: str, calls: str) -> None:
    assert calls in library_entry(heading)


def test_the_reference_says_what_a_process_a_value_and_a_transaction_of_a_history_are() -> None:
    text = (ROOT / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")
    entry = text.partition("\n## History\n")[2].partition("```")[0]
    assert all(f"``{name}``" in entry for name in ("bootstrap", "process", "value", "transaction"))


def test_the_reference_of_tests_says_what_each_member_does_and_what_is_shared_once() -> None:
    text = (ROOT / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")
    entries = re.findall(r"^### \w+\.(\w+)\n\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    said = {name: re.sub(r"```.*?```", "", entry, flags=re.DOTALL) for name, entry in entries}
    assert not [name for name, words in said.items() if not re.search(r"^[A-Z`].*\.$", words, re.MULTILINE)]
    names = [name for name, _ in entries]
    assert {name for name in names if names.count(name) > 1} == {"log", "restart", "stop"}, "threads and processes do these differently"
    assert not {"claim", "fits", "happen", "release", "start_stopped"} & set(names)
    assert "def check() -> None" in text, "of History; check(node_id) is of the nodes themselves"
    assert "def check(node_id" not in text


@pytest.mark.parametrize("page", ["library", "testing"])
def test_each_method_and_property_of_the_reference_is_declared_with_its_types(page: str) -> None:
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    entries = re.findall(r"^####? \w+\.(\w+)\n\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    undeclared = [name for name, entry in entries if not re.search(rf"^```python\n(.*def {name}\(|{name}: \w)", entry)]
    assert len(entries) > 20
    assert not undeclared


OUT_OF_REACH = {"NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "default_api_timeout_ms"}
"""What a call says of that where no broker answers, and when."""
RAISED = {
    "assign": {"INVALID_REQUEST"},
    "beginning_offsets": {"offsets_for_times"},
    "close": {"request_timeout_ms"},
    "commit": {"INVALID_GROUP_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", *OUT_OF_REACH},
    "committed": {"INVALID_GROUP_ID", "UNSTABLE_OFFSET_COMMIT", *OUT_OF_REACH},
    "end_offsets": {"offsets_for_times"},
    "group_metadata": {"INVALID_GROUP_ID", "ILLEGAL_GENERATION"},
    "offsets_for_times": {"UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "timeout_ms", *OUT_OF_REACH},
    "partitions_for": {"UNKNOWN_TOPIC_OR_PARTITION", *OUT_OF_REACH},
    "pause": {"UNKNOWN_TOPIC_OR_PARTITION"},
    "poll": {
        "on_connectivity",
        "INVALID_REQUEST",
        "TOPIC_AUTHORIZATION_FAILED",
        "FENCED_INSTANCE_ID",
        "OFFSET_OUT_OF_RANGE",
        "DeserializationError",
    },
    "position": {"UNKNOWN_TOPIC_OR_PARTITION", "REQUEST_TIMED_OUT", "default_api_timeout_ms"},
    "resume": {"UNKNOWN_TOPIC_OR_PARTITION"},
    "seek": {"UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"},
    "seek_to_beginning": {"UNKNOWN_TOPIC_OR_PARTITION"},
    "seek_to_end": {"UNKNOWN_TOPIC_OR_PARTITION"},
    "store_offsets": {"INVALID_REQUEST", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_GROUP_ID"},
    "subscribe": {"INVALID_REQUEST", "INVALID_GROUP_ID"},
    "unsubscribe": {"request_timeout_ms"},
}
"""What a caller of the consumer must know of each method."""


@pytest.mark.parametrize("name", RAISED)
def test_the_reference_says_what_each_method_of_the_consumer_raises(name: str) -> None:
    entry = library_entry(f"Consumer.{name}")
    assert not {word for word in RAISED[name] if not re.search(rf"\b{word}\b", entry)}


def error_rows() -> list[list[str]]:
    """The cells of each row of the page of error codes."""
    lines = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8").splitlines()
    return [line.strip("| ").replace("|  |", "| - |").split(" | ") for line in lines if re.match(r"\| -?\d", line)]


def test_the_reference_says_what_each_error_code_means_and_what_to_do() -> None:
    rows = error_rows()
    assert {row[1].strip("`") for row in rows} == set(aio.ErrorCode.__members__)
    assert not [row[1] for row in rows if row[1] != "`NONE`" and (len(row) < 5 or "-" in (row[3], row[4]))]


def test_the_commands_that_the_error_codes_name_exist() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^## (.*)$", (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8"), re.MULTILINE))
    named = {match[1] for match in re.finditer(r"`(ottla(?: [a-z-]+)+)", text)}
    assert len(named) > 10
    assert named <= known


TROUBLES = [
    "FENCED_INSTANCE_ID",
    "ILLEGAL_GENERATION",
    "INVALID_RECORD",
    "another poll of this consumer is in progress",
    "made on another event loop",
]


@pytest.mark.parametrize("message", TROUBLES)
def test_troubleshooting_has_what_applications_meet(message: str) -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| [^|]*{message}[^|]*\| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)


def test_every_page_is_in_the_navigation(site: ModuleType) -> None:
    listed = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {page.as_posix() for page in site.sources().values()}
    assert len(listed) == len(set(listed))
    assert set(listed) == {page for page in pages if not page.startswith("decisions/0")}


def test_no_two_files_are_one_page(site: ModuleType) -> None:
    pages = list(site.sources().values())
    assert len(pages) == len(set(pages))


def test_links_lead_to_where_the_pages_are_now(site: ModuleType) -> None:
    pages = site.sources()
    text = "[a](../COMPATIBILITY.md#apis-served) [b](clusters.md) [c](../tests/README.md) [d](https://example.com)\n```\n[e](clusters.md)\n```\n"
    assert site.rewritten(ROOT / "docs" / "testing.md", text, pages) == (
        "[a](compatibility.md#apis-served) [b](clusters.md) c [d](https://example.com)\n```\n[e](clusters.md)\n```\n"
    )
    assert site.rewritten(ROOT / "README.md", "![a](docs/console.png)", pages) == "![a](console.png)"
    assert site.rewritten(ROOT / "docs" / "decisions" / "README.md", "[a](../client.md)", pages) == "[a](../client.md)"


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="b.html">b</a>', "page.html links to b.html, which does not exist"),
        ('<h1 id="x"></h1><a href="#y">y</a>', "page.html links to #y, which is no heading"),
        ('<script src="https://example.com/x.js"></script>', "page.html loads https://example.com/x.js"),
        ('<img src="b.png">', "page.html loads b.png, which does not exist"),
        ('<link rel="stylesheet" href="//example.com/x.css">', "page.html loads //example.com/x.css"),
    ],
)
def test_what_is_wrong_with_a_built_page_is_found(site: ModuleType, tmp_path: Path, page: str, fault: str) -> None:
    (tmp_path / "page.html").write_text(page)
    assert list(site.faults(tmp_path)) == [fault]


def test_a_built_page_without_faults_has_none(site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<h1 id="x"></h1><a href="#x">x</a><a href="https://example.com">e</a><img src="a.png">')
    (tmp_path / "a.png").write_bytes(b"")
    assert not list(site.faults(tmp_path))


def test_the_page_of_the_recorded_run_needs_nothing_beside_itself() -> None:
    page: str = runpy.run_path(str(ROOT / "scripts" / "console_run.py"))["page"]()
    assert "src=" not in page
    assert "href=" not in page
    assert "fetch(`nodes/" in page, "it is the console's own script"
    assert "EventSource" not in page
    assert page.count("</script>") == 2


PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|sh|md|txt|json|c)|(?:tests|src|bench|scripts|examples|packaging)/[\w./-]+)(?:::\w+)?`")
ABSENT = {"src/ottla/broker/upkeep/changes.py"}
"""An example of docs/adding-a-part.md, which the reader makes."""


def named_files(text: str) -> set[str]:
    return {match[1] for match in PATH.finditer(text)}


def test_every_file_that_a_page_names_exists() -> None:
    pages = [path for path in tracked_files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    missing = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        for name in named_files(page.read_text(encoding="utf-8")) - ABSENT
        if not any((base / name).exists() for base in (ROOT, ROOT / "src" / "ottla", ROOT / "tests", page.parent))
    }
    assert not missing, "\n".join(sorted(missing))
    assert len(named_files((ROOT / "COMPATIBILITY.md").read_text(encoding="utf-8"))) > 100


def test_a_file_that_a_page_names_is_found_in_its_sentence() -> None:
    assert named_files("As `tests/a/test_b.py::test_c` and `runtime/pace.py` show, `orders/7` and `a.py` do not.") == {
        "tests/a/test_b.py",
        "runtime/pace.py",
    }
