"""A schema registry, by Confluent's HTTP interface: schemas by their ids, the newest of a subject, a new one for a subject.

An id means one schema for ever, so what was read is kept in the process; that there is none is kept for a second, for records of one
producer come together, and longer where answers are slow. An answer that does not come, or a server's error, is asked for again for half a
minute; then it is an error of the query, which may be started again, and never one of a record. So is a 404 that is not the registry's own,
as of a proxy before it, and an answer without what was asked for, as the page of a registry that is being upgraded. Name and password may
be in the address; they are not sent where a redirect leads to another server.

The text of a Protobuf schema is its name among imports (none of the last one's), a line's end, and its FileDescriptorProto in base64, which
registries have under ``format=serialized``.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.link import breakable

TIMEOUT_S: Final = 10.0
TRIES_S: Final = 30.0
PAUSE_S: Final = 0.5
RESPONSE_BYTES_MAX: Final = 16 << 20
REFERENCES_MAX: Final = 200
WRONG_KIND: Final = 415
NOT_FOUND: Final = 404
AWAY: Final = 0
"""In place of the status of an answer that did not come."""
ABSENT_S: Final = 1.0
ABSENT_S_MAX: Final = 300.0
"""Of an answer that there is no such schema: so long at most is one missed that has been registered since."""
ABSENT_ROUNDS: Final = 10
"""That there is no schema is kept for as long as so many questions for all such ids take, too: records whose ids take turns would each wait
for a slow registry otherwise."""
ABSENT_MAX: Final = 1_000
_BUSY: Final = (408, 429)
_DELETED: Final = "deleted=true"
"""A version that was deleted from its subject is still what the schemas that refer to it mean; an id has its schema without this."""
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_KNOWN: Final[dict[tuple[str, str, int], tuple[str, ...]]] = {}
AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
_ID: Final[dict[str, type]] = {"id": int}
_SCHEMA: Final[dict[str, type]] = {"schema": str}
_READERS: Final = {AVRO: "avro", PROTOBUF: "protobuf"}


class RegistryError(KafkaError):
    """A registry that cannot be reached (NETWORK_EXCEPTION), or refuses what is asked (INVALID_CONFIG): with the status of its answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        is_away = status in (AWAY, *_BUSY) or (status is not None and status >= 500)
        super().__init__(ErrorCode.NETWORK_EXCEPTION if is_away else ErrorCode.INVALID_CONFIG, text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Subject:
    """The newest version of a subject: its id, and its schema with those that it refers to before it."""

    schema_id: int
    texts: tuple[str, ...]


class Registry:
    """One registry. Its methods wait; they are called in tasks, or before a query starts."""

    def __init__(
        self,
        address: str,
        now_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
        *,
        kind: str = AVRO,
    ) -> None:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(parts):
            raise RegistryError("the address of a schema registry is http://host:port, or https://")
        self._address = address
        self._url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
        self._headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._kind = kind
        self._form = "?format=serialized" if kind == PROTOBUF else ""
        self._now_s = now_s
        self._pause = pause
        self._opener = urllib.request.build_opener(_Redirects)
        self._absent: dict[int, tuple[float, float]] = {}  # ids without a schema: until when that counts, and how long the answer took

    def texts(self, schema_id: int) -> tuple[str, ...]:
        """Returns the schema of this id, after the schemas that it refers to. RegistryError, of status 404 where there is none."""
        key = self._address, self._kind, schema_id
        known = _KNOWN.get(key)
        if known is None:
            known = _KNOWN[key] = self._with_references(self._schema(schema_id))
        return known

    def _schema(self, schema_id: int) -> Any:
        """Returns the registry's answer. RegistryError, of status 404, without another question for some time after such an answer."""
        asked_s = self._now_s()
        known = self._absent.get(schema_id)
        if known is not None and asked_s < known[0]:
            raise RegistryError(f"schema registry {self._url} has no schema {schema_id}", NOT_FOUND)
        try:
            return self._ask(f"/schemas/ids/{schema_id}{self._form}", _SCHEMA)
        except RegistryError as error:
            if error.status == NOT_FOUND:
                now_s = self._now_s()
                self._absent = {absent: known for absent, known in self._absent.items() if now_s < known[0]}
                if len(self._absent) >= ABSENT_MAX:
                    self._absent.clear()
                took_s = now_s - asked_s
                round_s = took_s + sum(took for _, took in self._absent.values())
                self._absent[schema_id] = now_s + min(ABSENT_S_MAX, max(ABSENT_S, ABSENT_ROUNDS * round_s)), took_s
            raise

    def newest(self, subject: str) -> Subject:
        """Returns the newest schema. RegistryError of status 404 where the subject has none."""
        try:
            answer = self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest{self._form}", _ID | _SCHEMA)
        except RegistryError as error:
            if error.status != NOT_FOUND:
                raise
            way_out = "register one, or name the subject of the values with subject="
            raise RegistryError(f"schema registry {self._url} has no schema of subject {subject!r}: {way_out}", NOT_FOUND) from None
        return Subject(answer["id"], self._with_references(answer))

    def register(self, subject: str, schema: str) -> int:
        """Registers the schema as a version of the subject, and returns its id. RegistryError where the others are not compatible."""
        body = {"schema": schema} | ({} if self._kind == AVRO else {"schemaType": self._kind})
        answer = self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", _ID, body)
        number: int = answer["id"]
        return number

    def _with_references(self, answer: Any) -> tuple[str, ...]:
        found: dict[tuple[str, int], str] = {}
        self._add_references(answer, found)
        kind = answer.get("schemaType", AVRO)
        if kind != self._kind:
            reader = _READERS.get(kind)
            way_out = f"read it with {reader}(...)" if reader else f"read the raw value, and decode it yourself: {kind} is not supported"
            raise RegistryError(f"a schema of {self._url} is {kind}, and not {self._kind}: {way_out}", WRONG_KIND)
        return (*found.values(), self._text("", answer))

    def _text(self, name: str, answer: Any) -> str:
        return str(answer["schema"]) if self._kind == AVRO else f"{name}\n{answer['schema']}"

    def _add_references(self, answer: Any, found: dict[tuple[str, int], str]) -> None:
        for reference in answer.get("references") or ():
            key = str(reference["subject"]), int(reference["version"])
            if key in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise RegistryError(f"a schema of {self._url} refers to more than {REFERENCES_MAX} others")
            more = f"{self._form}&{_DELETED}" if self._form else f"?{_DELETED}"
            inner = self._ask(f"/subjects/{urllib.parse.quote(key[0], safe='')}/versions/{key[1]}{more}", _SCHEMA)
            self._add_references(inner, found)
            found.setdefault(key, self._text(str(reference.get("name")), inner))

    def _ask(self, path: str, wanted: Mapping[str, type], body: Any = None) -> Any:
        """Returns the answer, which has these fields."""
        deadline_s = self._now_s() + TRIES_S
        while True:
            try:
                with breakable():
                    return self._ask_once(path, wanted, body)
            except RegistryError as error:
                if error.code != ErrorCode.NETWORK_EXCEPTION or self._now_s() >= deadline_s:
                    raise
            with breakable():
                self._pause(PAUSE_S)

    def _ask_once(self, path: str, wanted: Mapping[str, type], body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=self._headers)
        said = ""
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                content = response.read(RESPONSE_BYTES_MAX + 1)
                if response.length and len(content) <= RESPONSE_BYTES_MAX:
                    raise http.client.IncompleteRead(content, response.length)
        except urllib.error.HTTPError as error:
            with error, contextlib.suppress(OSError, http.client.HTTPException):  # the status says enough
                said = error.read(4096).decode(errors="replace")
            if error.code == NOT_FOUND and not _is_of_registry(said):
                text = f"schema registry {self._url}{path}: {error.code}, which is no registry's answer: {said}"
                raise RegistryError(text, AWAY) from None
            raise RegistryError(f"schema registry {self._url}{path}: {error.code} {said}", error.code) from None
        except (ValueError, http.client.InvalidURL) as error:
            raise RegistryError(f"schema registry {self._url}{path} cannot be asked for: {error}", 400) from None
        except (OSError, http.client.HTTPException) as error:
            raise RegistryError(f"schema registry {self._url} cannot be reached: {getattr(error, 'reason', error)}", AWAY) from None
        if len(content) > RESPONSE_BYTES_MAX:
            raise RegistryError(f"schema registry {self._url}{path}: the answer is larger than {RESPONSE_BYTES_MAX} bytes", 413)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise RegistryError(f"schema registry {self._url}{path}: the answer is no JSON; is it a schema registry?", AWAY) from None
        if not isinstance(found, dict) or not all(isinstance(found.get(name), kind) for name, kind in wanted.items()):
            names = " and ".join(wanted)
            raise RegistryError(f"schema registry {self._url}{path}: the answer has no {names}; is it a schema registry?", AWAY)
        if not _has_references(found):
            raise RegistryError(f"schema registry {self._url}{path}: the answer has references of another form", AWAY)
        return found


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects of questions, whose name and password are for the server that the user has named."""

    def redirect_request(self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Returns the question as it is asked there; of another server it is one without Authorization."""
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urllib.parse.urlsplit(newurl)[:2] != urllib.parse.urlsplit(req.full_url)[:2]:
            made.remove_header("Authorization")
        return made


def _has_references(answer: Mapping[str, Any]) -> bool:
    """Returns whether the answer's references, if it has any, name subjects and versions, and its kind is a name."""
    references = answer.get("references") or []
    if not isinstance(references, list) or not isinstance(answer.get("schemaType", AVRO), str):
        return False
    return all(isinstance(found, dict) and "subject" in found and isinstance(found.get("version"), int) for found in references)


def _is_of_registry(error: str) -> bool:
    """Returns whether the text of an error is a registry's own: what is in front of one that is away may say 404, too."""
    try:
        found = json.loads(error)
    except ValueError:
        return False
    return isinstance(found, dict) and "error_code" in found


def _has_port(parts: urllib.parse.SplitResult) -> bool:
    """Returns whether the port is a number, or left to the scheme."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False
