"""Links of the Markdown files lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from tests.test_repository import ROOT, tracked_files

LINK: Final = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OUTSIDE: Final = ("http:", "https:", "mailto:")


def anchors(text: str) -> set[str]:
    """The anchors of the headings: lower case, without punctuation, spaces as hyphens."""
    headings = [match[1] for match in HEADING.finditer(FENCED.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path, text: str) -> list[str]:
    found: list[str] = []
    for match in LINK.finditer(FENCED.sub("", text)):
        target, _, anchor = match[1].partition("#")
        if target.startswith(OUTSIDE):
            continue
        file = path if not target else (path.parent / target).resolve()
        if file != path and not file.exists():
            found.append(f"{match[1]}: no such file")
        elif anchor and anchor not in anchors(text if file == path else file.read_text(encoding="utf-8")):
            found.append(f"{match[1]}: no such heading")
    return found


def test_every_link_leads_somewhere() -> None:
    pages = [path for path in tracked_files() if path.suffix == ".md"]
    assert pages
    found = [f"{path.relative_to(ROOT)}: {link}" for path in pages for link in broken_links(path, path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "link"), [("[a](missing.md)", "missing.md"), ("# One: two\n[a](#one)", "#one"), ("[a](b.md#c)", "b.md#c")]
)
def test_a_link_to_nothing_is_found(tmp_path: Path, text: str, link: str) -> None:
    (tmp_path / "b.md").write_text("# B")
    assert [found.partition(": ")[0] for found in broken_links(tmp_path / "page.md", text)] == [link]


def test_links_to_files_and_headings_are_followed(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("## What is a `Part`, then?")
    text = "# One: two\n[a](#one-two) [b](b.md) [c](b.md#what-is-a-part-then) [d](https://example.com/x)\n```\n[e](nowhere)\n```\n"
    assert not broken_links(tmp_path / "page.md", text)
