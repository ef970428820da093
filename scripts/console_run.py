#!/usr/bin/env python3
"""A run of the console, recorded: ``scripts/console_run.py`` writes docs/console-run.json, and scripts/site.py the page that plays it.

The recording is a list of steps, each with the seconds ``after`` the beginning: ``news`` has what the page is told (``Pages.news``),
without what is as it was; times in it are seconds after the beginning, too. ``pressed`` is a button. The page has the console's own
template, script and style, and needs nothing beside itself: no server, no network.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import jinja2

ROOT: Final = Path(__file__).resolve().parent.parent
RECORDING: Final = ROOT / "docs" / "console-run.json"
PLAYER: Final = ROOT / "docs" / "console-run.js"
KILL_AFTER_S: Final = 5.0
RESTART_AFTER_S: Final = 11.0
END_AFTER_S: Final = 17.0
Step = dict[str, Any]


def page() -> str:
    """The page that plays the recording."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("ottla.console"), autoescape=True, undefined=jinja2.StrictUndefined)
    values = {"cluster_id": "", "problem": None, "can_kill": True, "nodes": [], "partitions": [], "partition_count": 0}
    text = environment.get_template("cluster.html").render(values, root="./")
    static = files("ottla.console") / "static"
    style = (static / "console.css").read_text()
    scripts = f"{(static / 'console.js').read_text()}\n{PLAYER.read_text()}"
    recording = json.dumps(json.loads(RECORDING.read_text()), separators=(",", ":")).replace("<", "\\u003c")
    text = re.sub(r"<link .*?>", lambda _: f"<style>\n{style}</style>", text)
    bar = '<nav><strong>ottla</strong><button id="play">Play again</button><span id="told"></span></nav>'
    text = re.sub(r"<nav>.*?</nav>", lambda _: bar, text, flags=re.DOTALL)
    text = re.sub(r"(<script src.*?</script>)+", "", text)
    return text.replace("</body>", f'<script type="application/json" id="run">{recording}</script>\n<script>\n{scripts}</script>\n</body>')


def record() -> list[Step]:
    """The steps of a cluster of three nodes, whose active controller is killed by its button and started again."""
    with tempfile.TemporaryDirectory(prefix="ottla-console-run-") as directory:
        command = [sys.executable, "-m", "ottla", "cluster", "start", "-n", "3", "--console", "--data", f"{directory}/cluster"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True) as process:
            assert process.stdout is not None
            address = next(line.partition(": ")[2].strip() for line in process.stdout if line.startswith("ottla console: "))
            try:
                return list(_steps(address))
            finally:
                process.send_signal(signal.SIGINT)
                process.stdout.read()


def _steps(address: str) -> Iterator[Step]:
    where = urlsplit(address)
    assert where.hostname is not None
    asked = http.client.HTTPConnection(where.hostname, where.port)
    asked.request("GET", f"/?{where.query}")
    headers = {"cookie": (asked.getresponse().headers["set-cookie"] or "").partition(";")[0]}
    asked.close()
    stream = http.client.HTTPConnection(where.hostname, where.port)
    stream.request("GET", "/news", headers=headers)
    answer = stream.getresponse()
    before: dict[str, Any] = {}
    began: float | None = None
    pool, pressing = ThreadPoolExecutor(), list[Future[None]]()
    victim = None
    buttons = [(KILL_AFTER_S, "kill"), (RESTART_AFTER_S, "restart")]
    for line in iter(answer.readline, b""):
        if not line.startswith(b"data: "):
            continue
        news = json.loads(line.removeprefix(b"data: "))
        if began is None and not (news["partitions"] and all(len(one["in_sync"]) == 3 for one in news["partitions"])):
            continue  # the cluster is whole, and the probe writes
        began = time.time() if began is None else began
        after = round(time.time() - began, 3)
        yield _step(after, news, before, began)
        if buttons and after >= buttons[0][0]:
            order = buttons.pop(0)[1]
            victim = victim if victim is not None else next(node["node_id"] for node in news["nodes"] if node["is_controller"])
            yield {"after": round(time.time() - began, 3), "pressed": {"node": victim, "order": order}}
            pressing.append(pool.submit(_press, where.hostname, where.port, f"/nodes/{victim}/{order}", headers))
        if after >= END_AFTER_S and all(len(one["in_sync"]) == 3 for one in news["partitions"]):
            break
    stream.close()
    for pressed in pressing:
        pressed.result()


def _press(host: str, port: int | None, path: str, headers: dict[str, str]) -> None:
    """The button's order is carried out; the answer comes when the node serves again."""
    connection = http.client.HTTPConnection(host, port)
    connection.request("POST", path, headers=headers)
    assert json.loads(connection.getresponse().read()) == {"error": None}
    connection.close()


def _step(after: float, news: dict[str, Any], before: dict[str, Any], began: float) -> Step:
    """What is new in the news; ``before`` is what was there, and is what is there now."""
    for one in (*news["events"], *news["dots"]):
        one["at"] = round(one["at"] - began, 3)
    changed = {name: value for name, value in news.items() if before.get(name, ...) != value}
    before |= news
    return {"after": after, "news": changed}


def main() -> None:
    steps = record()
    lines = ",\n".join(json.dumps(step, separators=(",", ":")) for step in steps)
    RECORDING.write_text(f"[\n{lines}\n]\n")
    print(f"{len(steps)} steps, {RECORDING.stat().st_size >> 10} KiB in {RECORDING.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
