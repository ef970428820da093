"""Kafka's ``ssl.*`` settings, of a listener or of a client, to the values that ``ports.Network`` takes.

Files are read by who asks (``paths_of`` says which): here nothing is opened. Stores are PEM, in a file or in the setting itself, or Java's
(``key_stores.py``). Source: KIP-651 (PEM), KIP-684 (client.auth).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.config.cipher_suites import openssl_names
from ottla.errors import ErrorCode, KafkaError
from ottla.security.key_stores import JKS, PKCS12, OpenedStore, kind_of, open_store
from ottla.tls import TLS_VERSIONS, ClientAuth, TlsClient, TlsKeys, TlsServer
from ottla.types import Secret

Get = Callable[[str], Any]
"""The value of a key, which may be None."""
KEY_STORE, TRUST_STORE = "ssl.keystore.location", "ssl.truststore.location"
_KEY: Final = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PROTOCOLS: Final = ("TLS", "TLSv1.2", "TLSv1.3")
_BESIDE: Final = {
    KEY_STORE: ("ssl.keystore.type", "ssl.keystore.password"),
    TRUST_STORE: ("ssl.truststore.type", "ssl.truststore.password"),
}
_TYPES: Final = (JKS, PKCS12, "PEM")


def paths_of(get: Get) -> list[str]:
    """Returns the files that have to be read."""
    return [path for path in (get(KEY_STORE), get(TRUST_STORE)) if path]


def server_of(get: Get, files: Mapping[str, bytes]) -> TlsServer:
    """Returns a server's settings. INVALID_CONFIG, with the key's name and a way out, for contradictions."""
    keys = _keys(get, files)
    if keys is None:
        raise _refused("ssl.keystore.location is not set: a listener needs a key and a certificate, there or in ssl.keystore.key")
    auth, trusted = ClientAuth(get("ssl.client.auth")), _trusted(get, files)
    if auth is not ClientAuth.NONE and trusted is None:
        raise _refused(
            f"ssl.client.auth={auth} needs the authorities of clients: set ssl.truststore.location or ssl.truststore.certificates"
        )
    versions = _versions(get)
    return TlsServer(keys, trusted, auth, versions, _ciphers(get, versions))


def client_of(get: Get, files: Mapping[str, bytes]) -> TlsClient:
    """Returns a client's settings. INVALID_CONFIG, with the key's name and a way out, for contradictions."""
    algorithm = (get("ssl.endpoint.identification.algorithm") or "").strip()
    if algorithm.lower() not in ("", "https"):
        raise _refused(f"ssl.endpoint.identification.algorithm={algorithm}: https, or nothing, is expected")
    versions = _versions(get)
    return TlsClient(_trusted(get, files), _keys(get, files), bool(algorithm), versions, _ciphers(get, versions))


def _keys(get: Get, files: Mapping[str, bytes]) -> TlsKeys | None:
    path, key, chain = get(KEY_STORE), get("ssl.keystore.key"), get("ssl.keystore.certificate.chain")
    password: Secret | None = get("ssl.key.password")
    if path:
        if key is not None or chain is not None:
            raise _refused("ssl.keystore.location and ssl.keystore.key exclude each other: one of them is the store")
        opened = _opened(KEY_STORE, get, path, files[path], password)
        if opened is not None:
            if opened.key is None:
                raise _refused(f"{KEY_STORE}={path} has no private key")
            return TlsKeys(opened.chain, Secret(opened.key))
        text = _pem(KEY_STORE, path, files[path])
        return _found(text, text, password, f"ssl.keystore.location={path}")
    if key is None and chain is None:
        return None
    if key is None or chain is None:
        raise _refused("ssl.keystore.key and ssl.keystore.certificate.chain belong together, and one of them is not set")
    return _found(_unfolded(key), _unfolded(chain), password, "ssl.keystore.key with ssl.keystore.certificate.chain")


def _found(key: str, chain: str, password: Secret | None, where: str) -> TlsKeys:
    keys, certificates = list(_KEY.finditer(key)), _CERTIFICATE.findall(chain)
    if len(keys) != 1 or not certificates:
        raise _refused(
            f"{where} has {len(keys)} private keys and {len(certificates)} certificates in PEM form; one key and its chain are expected"
        )
    if "ENCRYPTED" in keys[0][0] and password is None:
        raise _refused(f"{where} has an encrypted key: set ssl.key.password")
    return TlsKeys("\n".join(certificates) + "\n", Secret(keys[0][0] + "\n"), password)


def _trusted(get: Get, files: Mapping[str, bytes]) -> str | None:
    path, inline = get(TRUST_STORE), get("ssl.truststore.certificates")
    if path and inline is not None:
        raise _refused("ssl.truststore.location and ssl.truststore.certificates exclude each other: one of them is the store")
    if not path and get("ssl.truststore.password") is not None:
        raise _refused("ssl.truststore.password has no effect: there is no ssl.truststore.location; remove it")
    if not path and inline is None:
        return None
    opened = _opened(TRUST_STORE, get, path, files[path], None) if path else None
    text = opened.trusted if opened is not None else _pem(TRUST_STORE, path, files[path]) if path else _unfolded(inline)
    certificates = _CERTIFICATE.findall(text)
    if not certificates:
        where = f"{TRUST_STORE}={path}" if path else "ssl.truststore.certificates"
        raise _refused(f"{where} has no certificate" + (" in PEM form" if opened is None else ""))
    return "\n".join(certificates) + "\n"


def _opened(key: str, get: Get, path: str, data: bytes, key_password: Secret | None) -> OpenedStore | None:
    """Returns what a store of Java's has; None for a PEM file. Its first bytes say which it is: keytool's .jks is PKCS12."""
    type_key, password_key = _BESIDE[key]
    kind, password = str(get(type_key)).upper(), get(password_key)
    found = kind_of(data)
    if kind not in _TYPES or ((kind == "PEM") is not (found is None) and not (found is None and kind == JKS)):  # JKS is Kafka's default
        is_what = "a PEM file: set it to PEM" if found is None else f"a {found} store: set it to {found}"
        raise _refused(f"{type_key}={kind}, and {path} is {is_what}")
    if found is None:
        if password is not None:
            own = ", the key's is ssl.key.password" if key == KEY_STORE else "; remove it"
            raise _refused(f"{password_key} has no effect: a PEM file has none{own}")
        return None
    if password is None and key == KEY_STORE:
        raise _refused(f"{key}={path} is a {found} store: set {password_key}")
    try:
        return open_store(data, password, key_password)
    except KafkaError as error:
        raise _refused(f"{key}={path}: {error.message}") from None


def _pem(key: str, path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _refused(f"{key}={path} is no PEM file") from None


def _unfolded(secret: Secret | str) -> str:
    """Unfolds PEM: in one line of a file it has spaces, or backslash and n, where lines end."""
    text = secret.reveal() if isinstance(secret, Secret) else secret
    text = text.replace("\\n", "\n")
    return re.sub(r"(-----BEGIN [A-Z ]+-----)(.*?)(-----END [A-Z ]+-----)", _lines, text, flags=re.DOTALL)


def _lines(part: re.Match[str]) -> str:
    if ":" in part[2]:  # the headers of an encrypted key of the old form: it is as it is
        return part[0]
    body = "".join(part[2].split())
    return "\n".join((part[1], *(body[at : at + 64] for at in range(0, len(body), 64)), part[3]))


def _versions(get: Get) -> tuple[str, ...]:
    enabled = tuple(get("ssl.enabled.protocols") or TLS_VERSIONS)
    wrong = [version for version in enabled if version not in TLS_VERSIONS]
    if wrong:
        raise _refused(f"ssl.enabled.protocols={','.join(enabled)}: {wrong[0]} is not supported; {' and '.join(TLS_VERSIONS)} are")
    protocol = get("ssl.protocol") or "TLSv1.3"
    if protocol not in _PROTOCOLS:
        raise _refused(f"ssl.protocol={protocol} is not supported; {', '.join(_PROTOCOLS)} are")
    if protocol == "TLSv1.2":
        enabled = tuple(version for version in enabled if version == protocol)
    if not enabled:
        raise _refused(f"ssl.protocol={protocol} and ssl.enabled.protocols have no version in common")
    return enabled


def _ciphers(get: Get, versions: tuple[str, ...]) -> tuple[str, ...]:
    suites = get("ssl.cipher.suites") or []
    try:
        return tuple(openssl_names(suites, has_tls_1_3="TLSv1.3" in versions))
    except ValueError as error:
        raise _refused(f"ssl.cipher.suites: {error}") from None


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
