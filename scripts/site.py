#!/usr/bin/env python3
"""Builds the documentation as a site, offline: ``make docs``, into build/site.

The pages are those of docs/ and the guides at the root of the repository; links between them are those of the files. A link to a file that
is no page becomes plain text. The built site is checked: every link and anchor leads somewhere, and no page loads anything from elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))
import console_run

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build"
PAGES: Final = BUILD / "pages"
SITE: Final = BUILD / "site"
AT_THE_ROOT: Final = {
    **{name: name.lower() for name in ("ARCHITECTURE.md", "CHANGELOG.md", "COMPATIBILITY.md", "CONTRIBUTING.md", "STYLE.md")},
    "README.md": "index.md",
    "SECURITY.md": "vulnerabilities.md",
}
LINK: Final = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^)\s]+)\)")
PICTURE: Final = re.compile(r"(!\[[^\]\n]*\])\(([^)\s]+\.png)\)")
OUTSIDE: Final = ("http:", "https:", "mailto:")
LOADS: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
RUN: Final = "console-run.html"
RUN_IS_HERE: Final = "<!-- the recorded run -->"
HARMLESS_LINKS: Final = frozenset({"canonical", "next", "prev", "alternate"})


def sources() -> dict[Path, Path]:
    """Each page's file, and where it is among the pages."""
    found = {ROOT / name: Path(page) for name, page in AT_THE_ROOT.items()}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        place = path.relative_to(ROOT / "docs")
        found[path] = place.with_name("index.md") if place.name == "README.md" else place
    return found


def rewritten(path: Path, text: str, pages: dict[Path, Path]) -> str:
    """The page's text, with links to pages where they are now; a link to what is no page is its words."""

    def link(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        file, _, anchor = target.partition("#")
        if target.startswith(OUTSIDE) or not file:
            return match[0]
        page = pages.get((path.parent / file).resolve())
        if page is None:
            return words
        place = os.path.relpath(page, pages[path].parent)
        return f"[{words}]({place}{'#' + anchor if anchor else ''})"

    def picture(match: re.Match[str]) -> str:
        place = (path.parent / match[2]).resolve().relative_to(ROOT / "docs")
        return f"{match[1]}({os.path.relpath(place, pages[path].parent)})"

    text = text.replace(RUN_IS_HERE, f'<iframe src="{RUN}" title="a recorded run" width="100%" height="900"></iframe>')
    parts = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if at % 2 else PICTURE.sub(picture, LINK.sub(link, part)) for at, part in enumerate(parts))


def gather() -> None:
    """The pages are in ``PAGES``."""
    shutil.rmtree(PAGES, ignore_errors=True)
    pages = sources()
    for path, page in pages.items():
        target = PAGES / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rewritten(path, path.read_text(encoding="utf-8"), pages), encoding="utf-8")
    for picture in (ROOT / "docs").rglob("*.png"):
        shutil.copy(picture, PAGES / picture.relative_to(ROOT / "docs"))
    (PAGES / RUN).write_text(console_run.page(), encoding="utf-8")


class Page(HTMLParser):
    """One built page: its anchors, the links that it has, and what a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        is_hint = tag == "link" and values.get("rel", "") in HARMLESS_LINKS
        if tag in LOADS and LOADS[tag] in values and not is_hint:
            self.loads.append(values[LOADS[tag]])


def faults(site: Path) -> Iterator[str]:
    """What is wrong with the built site."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for loaded in page.loads:
            if loaded.startswith(("http:", "https:", "//")):
                yield f"{name} loads {loaded}"
            elif not ((site if loaded.startswith("/") else path.parent) / loaded.partition("?")[0].lstrip("/")).resolve().exists():
                yield f"{name} loads {loaded}, which does not exist"
        for link in page.links:
            file, _, anchor = link.partition("#")
            if link.startswith(OUTSIDE) or file.startswith("/") or (not file and not anchor):
                continue
            target = path if not file else (path.parent / file).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{name} links to {link}, which does not exist"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{name} links to {link}, which is no heading"


def main() -> int:
    gather()
    shutil.rmtree(SITE, ignore_errors=True)
    built = subprocess.run(
        [Path(sys.executable).parent / "zensical", "build", "--clean", "--config-file", ROOT / "mkdocs.yml"], check=False
    )
    if built.returncode:
        return built.returncode
    found = list(faults(SITE))
    print("\n".join(found) if found else f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
