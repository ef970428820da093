"""Tokens of OAUTHBEARER from an issuer, by the client's own id and secret (RFC 6749, 4.4; KIP-768).

A token serves all connections of its client until most of its time is over; then the next connection asks for another one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Download
from ottla.types import Secret

ANSWER_BYTES_MAX: Final = 1 << 18
SHARE_OF_LIFE: Final = 0.8
"""Kafka's sasl.login.refresh.window.factor."""
LIFE_SECONDS: Final = 60
"""Of a token of which the issuer does not say it."""


class TokenEndpoint:
    """``fetch`` and ``now_ms``, of the monotonic clock, are the world's."""

    def __init__(
        self,
        fetch: Callable[[Download], Awaitable[bytes]],
        now_ms: Callable[[], int],
        *,
        url: str,
        client_id: str,
        client_secret: Secret,
        scope: str | None,
    ) -> None:
        self._fetch = fetch
        self._now_ms = now_ms
        credentials = f"{quote(client_id, safe='')}:{quote(client_secret.reveal(), safe='')}"  # RFC 6749, 2.3.1
        self._asked = Download(
            url,
            ANSWER_BYTES_MAX,
            urlencode({"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})).encode(),
            Secret(f"Basic {base64.b64encode(credentials.encode()).decode()}"),
        )
        self._token = ""
        self._until_ms = -1

    async def newest(self) -> str:
        """Returns a valid token. KafkaError that says nothing of what was answered, but that there is none."""
        if self._now_ms() < self._until_ms:
            return self._token
        try:
            answer = json.loads(await self._fetch(self._asked))
            token, seconds = answer["access_token"], answer.get("expires_in", LIFE_SECONDS)
            if not isinstance(token, str) or str(answer.get("token_type", "Bearer")).lower() != "bearer":
                raise ValueError
            life_ms = min(max(float(seconds), 0.0), 1e9) * 1000
        except PermissionError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the issuer gives this client no token: {error.strerror}") from None
        except OSError as error:
            host = urlsplit(self._asked.url).hostname
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no token from {host}: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the issuer's answer has no access_token") from None
        self._token, self._until_ms = token, self._now_ms() + int(life_ms * SHARE_OF_LIFE)
        return token


def check_endpoint(url: str) -> str | None:
    """Returns what is wrong with the URL; None for one that secrets may be sent to."""
    place = urlsplit(url)
    if place.scheme != "https" or not place.hostname:
        return "https://HOST/PATH is expected: a secret is sent there"
    return "a name and a password have no place in it" if place.username is not None or place.password is not None else None
