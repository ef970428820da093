"""The pages over HTTP: only for who has the token, and only under a name of this machine.

A browser that has opened the page with its token keeps that in a cookie. Another site cannot act in its name: the cookie is not sent
from there, and an order has to come from a page of this console. Addresses in pages are relative, so that they work below a prefix.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Final
from urllib.parse import urlsplit

import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ottla.console.pages import Pages, Values
from ottla.console.processes import Processes, RefusedError
from ottla.errors import ErrorCode, KafkaError, OttlaError

COOKIE: Final = "ottla-console"
NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
NEWS_SECONDS: Final = 0.25
LIVE_SECONDS: Final = 1.0
EVENTS: Final = "text/event-stream"
HEADERS: Final = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
ASSETS: Final = {"console.css": "text/css"} | dict.fromkeys(("console.js", "news.js", "live.js"), "text/javascript")
_NOT_THERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_TOPIC_EXCEPTION})


class ConsoleApp:
    """The application over ``pages``. ``processes`` carries orders out."""

    def __init__(self, pages: Pages, processes: Processes, token: str) -> None:
        self._pages = pages
        self._processes = processes
        self._token = token
        loader = jinja2.PackageLoader("ottla.console")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        self._closing = asyncio.Event()
        pages_of: dict[str, tuple[str, Callable[[Request], Awaitable[Values]]]] = {
            "/": ("cluster.html", self._cluster),
            "/topics": ("topics.html", lambda request: pages.topics()),
            "/topics/{name}": ("topic.html", lambda request: pages.topic(request.path_params["name"])),
            "/topics/{name}/messages": ("messages.html", self._messages),
            "/groups": ("groups.html", lambda request: pages.groups()),
            "/groups/{group_id}": ("group.html", lambda request: pages.group(request.path_params["group_id"])),
            "/brokers": ("brokers.html", lambda request: pages.brokers()),
        }
        routes = [Route(path, self._page(template, values)) for path, (template, values) in pages_of.items()]
        routes += [
            Route("/news", self._guarded(self._news)),
            Route("/nodes/{node_id:int}/{order}", self._guarded(self._order), methods=["POST"]),
            *(Route(f"/static/{name}", self._asset(name, kind)) for name, kind in ASSETS.items()),
        ]
        self.starlette = Starlette(routes=routes)

    def close(self) -> None:
        """Ends the streams."""
        self._closing.set()

    # -- who may

    def _guarded(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            if urlsplit(f"//{request.headers.get('host', '')}").hostname not in NAMES:
                raise HTTPException(421, "this console is for 127.0.0.1 and localhost")
            given = request.query_params.get("token")
            known = given if given is not None else request.cookies.get(COOKIE, "")
            if not hmac.compare_digest(known.encode(), self._token.encode()):
                raise HTTPException(401, "open the address that the command has printed: it has a token")
            if given is not None:  # the address that is shown from now on has none
                response: Response = RedirectResponse(f"./{request.url.path.rpartition('/')[2]}", 303)
                response.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            else:
                response = await handle(request)
            response.headers.update(HEADERS)
            return response

        return guarded

    def _page(self, template: str, values: Callable[[Request], Awaitable[Values]]) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            try:
                found = await values(request)
            except KafkaError as error:
                raise HTTPException(404 if error.code in _NOT_THERE else 503, str(error)) from error
            except OttlaError as error:
                raise HTTPException(503, str(error)) from error
            accepted = request.headers.get("accept", "")
            if "application/json" in accepted:
                return JSONResponse(found)
            root = "../" * (request.url.path.count("/") - 1) or "./"

            def render(found: Values) -> str:
                return self._templates.get_template(template).render(found, root=root)

            if EVENTS in accepted:
                return StreamingResponse(self._moves(found, lambda: values(request), render), media_type=EVENTS)
            return HTMLResponse(render(found))

        return self._guarded(page)

    async def _moves(self, shown: Values, values: Callable[[], Awaitable[Values]], render: Callable[[Values], str]) -> AsyncIterator[str]:
        """Yields the page as an event, at once and after each change, until what it shows is gone. An absent broker changes nothing."""
        yield f"data: {json.dumps(render(shown))}\n\n"
        while await self._goes_on(LIVE_SECONDS):
            try:
                found = await values()
            except KafkaError as error:
                if error.code in _NOT_THERE:
                    return
            except OttlaError:
                pass
            else:
                if found != shown:
                    shown = found
                    yield f"data: {json.dumps(render(shown))}\n\n"

    async def _goes_on(self, seconds: float) -> bool:
        """True when streams are still served after that time; False at once when they end meanwhile."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        return not self._closing.is_set()

    # -- what

    async def _cluster(self, request: Request) -> Values:
        return self._pages.cluster()

    async def _messages(self, request: Request) -> Values:
        asked = request.query_params
        try:
            partition = int(asked["partition"]) if asked.get("partition") else None
            count = int(asked.get("count") or 50)
        except ValueError as error:
            raise HTTPException(400, "partition and count are numbers") from error
        form = asked.get("form", "raw")
        if form not in ("raw", "json", "hex"):
            raise HTTPException(400, "form is raw, json or hex")
        name = request.path_params["name"]
        return await self._pages.messages(name, partition=partition, count=count, search=asked.get("search", ""), form=form)

    async def _news(self, request: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            events = dots = 0
            is_open = True
            while is_open:
                values, events, dots = self._pages.news(events, dots)
                yield f"data: {json.dumps(values)}\n\n"
                is_open = await self._goes_on(NEWS_SECONDS)

        return StreamingResponse(stream(), media_type=EVENTS)

    async def _order(self, request: Request) -> Response:
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            raise HTTPException(403, "an order comes from a page of this console")
        try:
            await self._processes.order(request.path_params["order"], request.path_params["node_id"])
        except RefusedError as error:
            return JSONResponse({"error": str(error)}, 409)
        return JSONResponse({"error": None})

    def _asset(self, name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
        content = (files("ottla.console") / "static" / name).read_bytes()

        async def asset(request: Request) -> Response:
            return Response(content, media_type=kind, headers={"x-content-type-options": "nosniff"})

        return asset
