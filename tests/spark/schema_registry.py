"""A schema registry in the test's process: Confluent's HTTP interface, as far as it is used, in memory."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SchemaRegistry:
    """``with SchemaRegistry() as registry``: it listens on a free port of loopback."""

    def __init__(self, user: str | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.failures_left = 0  # requests that are answered with 503
        self.halves_left = 0  # requests that get half of an answer
        self.is_behind_proxy = False  # whose 404 each request gets
        self.moved_to: str | None = None  # the address of the server that each question is sent on to, below /moved
        self.deleted: set[str] = set()  # subjects that are there for those who ask for deleted ones, too
        self._user = user
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def address(self) -> str:
        user = "" if self._user is None else f"{self._user}@"
        return f"http://{user}127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> SchemaRegistry:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add(self, subject: str, schema: Any, references: list[dict[str, Any]] | None = None, *, kind: str = "AVRO") -> int:
        """The schema is the newest of the subject; its id. That of Protobuf is a FileDescriptorProto in base64, and of no other form."""
        number = len(self.schemas) + 1
        found: dict[str, Any] = {"schema": json.dumps(schema)} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
        if references:
            found["references"] = references
        self.schemas[number] = found
        self.subjects.setdefault(subject, []).append(number)
        return number

    def kinds(self, subject: str) -> list[str]:
        """Of the subject's schemas."""
        return [self.schemas[number].get("schemaType", "AVRO") for number in self.subjects[subject]]

    def answer(self, path: str, body: Any, user: str | None) -> tuple[int, Any]:
        self.asked.append(path)
        path, _, query = path.partition("?")
        if user != self._user:
            return 401, {"error_code": 401, "message": "who are you"}
        if self.failures_left > 0:
            self.failures_left -= 1
            return 503, {"error_code": 503, "message": "later"}
        if (
            body is None
            and any(found.get("schemaType") == "PROTOBUF" for found in self.schemas.values())
            and "format=serialized" not in query
        ):
            return 200, {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}  # what a registry says that is not asked for the form
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["subjects", subject, "versions"] if body is not None:
                if "incompatible" in subject:
                    return 409, {"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema"}
                kind = body.get("schemaType", "AVRO")
                schema = json.loads(body["schema"]) if kind == "AVRO" else body["schema"]
                for known in self.subjects.get(subject, ()):
                    if kind == "AVRO" and json.loads(self.schemas[known]["schema"]) == schema:
                        return 200, {"id": known}
                return 200, {"id": self.add(subject, schema, kind=kind)}
            case ["subjects", subject, "versions", version] if subject in self.subjects and (
                subject not in self.deleted or "deleted=true" in query
            ):
                ids = self.subjects[subject]
                index = len(ids) if version == "latest" else int(version)
                return 200, {"subject": subject, "version": index, "id": ids[index - 1], **self.schemas[ids[index - 1]]}
        return 404, {"error_code": 40403, "message": "not found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: Any) -> None:
                given = self.headers.get("Authorization")
                user = None if given is None else base64.b64decode(given.removeprefix("Basic ")).decode()
                status, said = registry.answer(self.path.removeprefix("/moved"), body, user)
                content = json.dumps(said).encode()
                if registry.is_behind_proxy:
                    status, content = 404, b"<h1>404 Not Found</h1>"
                if registry.moved_to is not None and not self.path.startswith("/moved"):
                    status, content = 307, b""
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", f"{registry.moved_to}/moved{self.path}")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if registry.halves_left > 0:
                    registry.halves_left -= 1
                    content = content[: len(content) // 2]
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
