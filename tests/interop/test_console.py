"""The page with the kill button, in a browser: a node is killed, others lead, it is started again, and all replicas are in sync.

And the page of the documentation on which a recorded run of it is played.
"""

from __future__ import annotations

import contextlib
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from tests.interop.tools import program, run

from ottla.sync import Admin, NewTopic, Producer, TopicPartition

ROOT = Path(__file__).parents[2]
WAIT_MS_MAX = 60_000
SECONDS_MAX = 150
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
LARGE = 9_007_199_254_740_993
"""Not a number that JavaScript has."""


@pytest.fixture
def console(tmp_path: Path) -> Iterator[tuple[str, str]]:
    with started([sys.executable, "-m", "ottla"], tmp_path) as addresses:
        yield addresses


@contextlib.contextmanager
def started(program: list[str], directory: Path) -> Iterator[tuple[str, str]]:
    """The console's address, and the brokers', of a cluster of three nodes."""
    command = [*program, "cluster", "start", "--console", "--port", "0", "--data", str(directory / "cluster")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("ottla console: "):
                break
        addresses = re.search(r"bootstrap +(\S+)", said)
        assert addresses is not None, said
        yield said.rpartition("ottla console: ")[2].strip(), addresses[1]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == 0


@pytest.fixture
def page() -> Iterator[Page]:
    chromium = program("chromium", way_to_get_it="apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1100, "height": 1000})
        page.set_default_timeout(WAIT_MS_MAX)
        expect.set_options(timeout=WAIT_MS_MAX)
        yield page
        browser.close()


def leaders(page: Page) -> list[str]:
    return page.locator("#partitions tbody tr td:nth-child(2)").all_inner_texts()


def test_a_node_is_killed_and_started_by_its_buttons(console: tuple[str, str], page: Page, tmp_path: Path) -> None:
    address, bootstrap = console
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    assert "token" not in page.url
    expect(page.locator("#nodes button")).to_have_count(3)
    expect(page.locator("#partitions tbody tr td.good")).to_have_count(6)
    active = page.locator("#nodes tbody tr").filter(has_text="active")
    victim = active.get_attribute("data-node")
    assert victim in leaders(page)
    active.get_by_role("button", name="kill").click()
    row = page.locator(f'#nodes tbody tr[data-node="{victim}"]')
    expect(row).to_contain_text("killed")
    page.wait_for_function(
        "node => [...document.querySelectorAll('#partitions tbody td:nth-child(2)')].every(c => c.innerText !== node)", arg=victim
    )
    expect(page.locator("#nodes tbody tr").filter(has_text="active")).not_to_have_attribute("data-node", victim or "")
    expect(page.locator("#events")).to_contain_text(f"process of node {victim}: killed")
    expect(page.locator("#slowest")).to_contain_text("ms")
    page.screenshot(path=str(tmp_path / "killed.png"))
    row.get_by_role("button", name="restart").click()
    expect(row).to_contain_text("serving")
    expect(page.locator("#partitions tbody tr td.good")).to_have_count(6)
    assert not errors

    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 1)])
    with Producer(bootstrap) as producer:
        producer.send("orders", b'{"id": %d}' % LARGE, key=b"<b>k</b>", headers={"trace": b"needle"}).result(30)
        producer.send("orders", b"other").result(30)
    page.get_by_role("link", name="Topics").click()
    page.get_by_role("row", name="orders").get_by_role("link", name="messages").click()
    page.get_by_placeholder("in key, value or headers").fill("needle")
    page.get_by_role("combobox").select_option("json")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("table.messages tbody tr")).to_have_count(1)
    expect(page.locator("table.messages")).to_contain_text(f'"id": {LARGE}')
    expect(page.locator("table.messages")).to_contain_text("<b>k</b>")
    page.get_by_label("live").check()
    with Producer(bootstrap) as producer:
        producer.send("orders", b"another needle").result(30)
    expect(page.locator("table.messages tbody tr")).to_have_count(2)
    with Admin(bootstrap) as admin:
        admin.set_offsets("billing", {TopicPartition("orders", 0): 1})
        page.get_by_role("link", name="Groups", exact=True).click()
        page.get_by_role("link", name="billing").click()
        expect(page.locator("#rows tr td").last).to_have_text("2")
        admin.set_offsets("billing", {TopicPartition("orders", 0): 3})
        expect(page.locator("#rows tr td").last).to_have_text("0")
    for name in ("Groups", "Brokers", "Cluster"):
        page.get_by_role("link", name=name, exact=True).click()
    expect(page.locator("#nodes button")).to_have_count(3)
    assert not errors


def test_the_first_minute_of_the_wheel_in_an_empty_environment(page: Page, tmp_path: Path) -> None:
    """The wheel, and what it needs, takes less than 50 MB. How long it took is printed, and decides nothing."""
    began = time.monotonic()
    environment = tmp_path / "environment"
    run("env", f"OUT={tmp_path / 'dist'}", ROOT / "scripts" / "wheels", seconds_max=SECONDS_MAX)
    [wheel] = [found for found in (tmp_path / "dist").glob("*.whl") if "none-any" not in found.name]
    built = time.monotonic()
    run(sys.executable, "-m", "venv", environment, seconds_max=SECONDS_MAX)
    empty = size_of(environment)
    run(environment / "bin" / "pip", "install", "--quiet", f"{wheel}[console]", seconds_max=SECONDS_MAX)
    size = size_of(environment) - empty
    assert size < 50_000_000
    with started(["env", "-u", "PYTHONPATH", str(environment / "bin" / "ottla")], tmp_path) as (address, _):
        page.goto(address)
        expect(page.locator("#nodes button")).to_have_count(3)
        page.locator("#nodes tbody tr").first.get_by_role("button", name="kill").click()
        expect(page.locator("#nodes tbody tr").filter(has_text="killed")).to_have_count(1)
        print(f"{size / 1e6:.0f} MB; the wheel in {built - began:.0f} s, and a node was killed {time.monotonic() - built:.0f} s later")


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def test_a_recorded_run_is_played_without_a_server(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    path.write_text(runpy.run_path(str(ROOT / "scripts" / "console_run.py"))["page"]())
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{path.as_uri()}?speed=10")
    killed = page.locator("#nodes tbody tr").filter(has_text="killed")
    expect(killed).to_have_count(1)
    victim = killed.get_attribute("data-node")
    expect(page.locator("#events")).to_contain_text(f"process of node {victim}: killed")
    page.get_by_role("button", name="kill").first.click()  # which does nothing: it is a recording
    again = page.get_by_role("button", name="Play again")
    expect(again).to_be_enabled()
    expect(page.locator("#nodes tbody tr").filter(has_text="serving")).to_have_count(3)
    expect(page.locator("#partitions tbody tr td.good")).to_have_count(6)
    expect(page.locator("#slowest")).to_contain_text("ms")
    again.click()
    expect(again).to_be_disabled()
    expect(page.locator("#nodes tbody tr").filter(has_text="killed")).to_have_count(1)
    assert not errors
    assert asked == [f"{path.as_uri()}?speed=10"]
