"""Key stores of five kinds, as keytool and openssl make them: a listener speaks TLS with each."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from tests.broker.certificates import Authority
from tests.broker.test_node import properties

from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin

KINDS: Final = ("keytool-jks", "keytool-pkcs12", "openssl", "openssl-legacy", "openssl-no-mac-iterations")
PASSWORD: Final = "store-secret"


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_listener_has_a_store_of_each_kind(tmp_path: Path, kind: str) -> None:
    assert shutil.which("keytool"), "a Java is needed, with its keytool"
    authority = Authority(tmp_path / "certificates")
    issued = authority.issue("broker")
    p12, store = tmp_path / "first.p12", tmp_path / "store"
    options = {"openssl-legacy": ["-legacy"], "openssl-no-mac-iterations": ["-nomaciter", "-iter", "1"]}.get(kind, [])
    run("openssl", "pkcs12", "-export", "-in", str(issued.store), "-out", str(p12), "-passout", f"pass:{PASSWORD}", *options)
    if kind.startswith("keytool"):
        form = kind.removeprefix("keytool-").upper()
        source = ["-srckeystore", str(p12), "-srcstorepass", PASSWORD]
        run("keytool", "-importkeystore", *source, "-destkeystore", str(store), "-deststoretype", form, "-deststorepass", PASSWORD)
    else:
        store = p12
    given = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.trust)}
    with (
        BrokerThread(properties(tmp_path / "data", **given)) as broker,
        Admin(f"127.0.0.1:{broker.addresses['SSL'][1]}", **settings) as admin,
    ):
        admin.list_topics()
