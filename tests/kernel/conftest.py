"""The compiled form of the record kernel, which ``make kernel`` builds before these tests; without it they fail."""

import hashlib
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from ottla.records import plain_kernel
from ottla.records.kernel import COMPILED

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    module = importlib.import_module(COMPILED)
    source = Path(plain_kernel.__file__).read_bytes()
    assert hashlib.sha256(source).hexdigest() == module.SOURCE_SHA256, "the compiled kernel is of another source: make kernel"
    return module
