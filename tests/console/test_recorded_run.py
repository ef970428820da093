"""The recorded run that the documentation plays: it has what the page is told today, and shows what the page is for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from ottla.aio import Admin, NewTopic
from ottla.console.pages import Pages, dot_values, event_values
from ottla.console.probe import Dot, Probe
from ottla.console.watching import Event, Watcher
from ottla.runtime.serve import BrokerThread

ROOT: Final = Path(__file__).parents[2]
STEPS: Final[list[dict[str, Any]]] = json.loads((ROOT / "docs" / "console-run.json").read_text())
NEWS: Final = [step["news"] for step in STEPS if "news" in step]


def form(value: Any) -> Any:
    """The fields of objects, and of each object of a list; the rest is as it is told."""
    if isinstance(value, dict):
        return {name: form(found) for name, found in value.items()}
    if isinstance(value, list):
        return [one for index, one in enumerate(map(form, value)) if one not in list(map(form, value))[:index]]
    return None if value is None else type(value)


async def told(bootstrap: str) -> dict[str, Any]:
    """What the page is told of that broker, with one of everything."""
    async with Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic("t", 1)]) == {"t": None}
        watcher = Watcher(admin, lambda: asyncio.sleep(0, {1: "serving"}))
        await watcher.look()
        values, _, _ = Pages(bootstrap, {}, admin, watcher, Probe(bootstrap, {}), can_kill=True).news(0, 0)
        return values | {
            "events": [event_values(Event(1.5, "node", "x"))],
            "dots": [dot_values(Dot(1.5, 2.5, 0))],
        }


def test_the_recording_has_the_form_of_what_the_page_is_told(tmp_path: Path) -> None:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker:
        wanted = form(asyncio.run(told(broker.bootstrap)))
    whole = {name: value for news in reversed(NEWS) for name, value in news.items() if value != []}
    assert form(whole) == wanted
    for news in NEWS:
        assert news.keys() <= wanted.keys()


def test_the_active_controller_is_killed_others_lead_and_it_returns() -> None:
    [kill, restart] = [step["pressed"] for step in STEPS if "pressed" in step]
    victim = kill["node"]
    assert (kill, restart) == ({"node": victim, "order": "kill"}, {"node": victim, "order": "restart"})
    first = NEWS[0]
    assert first["controller"] == victim
    assert victim in {one["leader"] for one in first["partitions"]}
    texts = [event["text"] for news in NEWS for event in news.get("events", ())]
    assert f"process of node {victim}: killed" in texts
    last: dict[str, Any] = {}
    leaders = []
    for news in NEWS:
        last |= news
        leaders.append({one["leader"] for one in last["partitions"]})
    assert any(victim not in found and -1 not in found for found in leaders)
    assert all(len(one["in_sync"]) == 3 for one in last["partitions"])
    assert last["controller"] not in (-1, victim)
    times = [step["after"] for step in STEPS]
    assert times == sorted(times)
    assert max(dot["ms"] for news in NEWS for dot in news.get("dots", ())) > 20, "the moment of the kill can be seen"
    assert not [dot for news in NEWS for dot in news.get("dots", ()) if dot["error"]]
