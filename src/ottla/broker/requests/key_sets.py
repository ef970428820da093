"""The keys that sign OAUTHBEARER tokens (``sasl.oauthbearer.jwks.endpoint.url``): of a file, or fetched over HTTPS.

A set is read when its listener is bound, and again every ``sasl.oauthbearer.jwks.endpoint.refresh.ms``; a token that names a key that is
not there has it read again: for each key at most once in ``AGAIN_MS``, and for all of them once in ``APART_MS``, however many such tokens
come. A stranger's invented key keeps no new one of the issuer's out. A set that cannot be read leaves the old one,
and is read again after its backoff alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.ports import Download, TimerHandle, World
from ottla.security.jwt import KEY_SET_BYTES_MAX, SigningKey, parse_key_set

log = get_logger(__name__)

URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
REFRESH: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
BACKOFF: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
BACKOFF_MAX: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
AGAIN_MS: Final = 60_000
APART_MS: Final = 2_000
MISSED_MAX: Final = AGAIN_MS // APART_MS


class KeySet:
    """The key set of one URL."""

    def __init__(self, world: World, config: BrokerConfig, url: str) -> None:
        self.keys: Sequence[SigningKey] = ()
        self._world = world
        self._config = config
        self._url = url
        self._shown = url.partition("?")[0]
        self._timer: TimerHandle | None = None
        self._is_reading = False
        self._is_stopped = False
        self._failures = 0
        self._missed: dict[int, int] = {}
        """When the set was read for a key that it did not have, by the hash of the key's id, oldest first."""

    async def begin(self) -> None:
        """Starts to read the keys. INVALID_CONFIG for a file that is no key set. Fetched keys come later; no client is let in before."""
        if self._url.startswith("https:"):
            self._due()
        else:
            await self.read()
            self._later()

    def look_again(self, key_id: str) -> None:
        """Looks again, for there may be a newer set, which has the key."""
        now_ms, name = self._world.clock.monotonic_ms(), hash(key_id)
        last_ms = next(reversed(self._missed.values()), now_ms - APART_MS)
        if self._is_reading or self._is_stopped or self._failures or now_ms - last_ms < APART_MS:
            return
        if now_ms - self._missed.get(name, now_ms - AGAIN_MS) >= AGAIN_MS:
            self._missed.pop(name, None)
            self._missed[name] = now_ms
            if len(self._missed) > MISSED_MAX:
                del self._missed[next(iter(self._missed))]
            self._due()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def read(self) -> None:
        """Reads the newest keys. INVALID_CONFIG when they cannot be read."""
        place = urlsplit(self._url)
        try:
            if place.scheme == "https":
                if self._world.fetch is None:
                    raise OSError("nothing can be fetched here")
                data = await self._world.fetch(Download(self._url, KEY_SET_BYTES_MAX))
            else:
                data = await self._world.disk.read_given_file(unquote(place.path), bytes_max=KEY_SET_BYTES_MAX)
            self.keys = parse_key_set(data)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{URL}={self._shown} cannot be read: {reason}") from None
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{URL}={self._shown}: {error.message}") from None
        self._failures = 0

    def _later(self) -> None:
        if self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = self._config[REFRESH]
        if self._failures:
            delay_ms = min(self._config[BACKOFF] << min(self._failures - 1, 30), self._config[BACKOFF_MAX])
        self._timer = self._world.timers.call_later_ms(max(1, delay_ms), self._due)

    def _due(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            eager.run(self.read(), self._was_read)

    def _was_read(self, _: None, error: BaseException | None) -> None:
        self._is_reading = False
        if error is not None and not self._is_stopped:  # a stop ends a read that is under way
            self._has_failed(error)
        self._later()

    def _has_failed(self, error: BaseException) -> None:
        self._failures += 1
        log.error("token_keys_not_read", url=self._shown, reason=error.message if isinstance(error, KafkaError) else repr(error))
