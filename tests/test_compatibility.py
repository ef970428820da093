"""COMPATIBILITY.md says what is so: its tables are checked against the code and the tests."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.broker.handlers import SERVICES
from ottla.broker.roles import Role

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "COMPATIBILITY.md").read_text()


def test_the_table_of_apis_is_what_api_versions_reports() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|", TEXT, re.MULTILINE)
    told = [(int(key), name, int(low), int(high)) for key, name, low, high in rows]
    assert told == [
        (key, service.api.name, service.version_min_listed, service.version_max) for key, service in sorted(SERVICES[Role.BROKER].items())
    ]


def test_every_test_that_is_named_exists() -> None:
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    for path, name in re.findall(r"`(tests/[\w/.]+?)(?:::(\w+))?`", TEXT):
        if path.endswith(".py"):
            assert path in sources, f"{path} is named in COMPATIBILITY.md"
            assert not name or f"def {name}(" in sources[path], f"{path}::{name} is named in COMPATIBILITY.md"
        else:
            assert (ROOT / path).exists(), f"{path} is named in COMPATIBILITY.md"
