"""``python -m tests.torture.fuzz TARGET RUNS CORPUS``: one target under atheris, which guides its inputs by coverage.

Ends with 0 when all runs are over and nothing but the allowed errors was raised; else atheris prints the finding.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["ottla"]):
    from tests.torture.fuzz.targets import ALLOWED, TARGETS

    from ottla.wire import compiler

MEMORY_MIB_MAX = 256
INPUT_BYTES_MAX = 4096
INPUT_SECONDS_MAX = 10


_build = compiler._build
compiler._build = lambda *arguments: atheris.instrument_func(_build(*arguments))  # codecs are made while the program runs


def main() -> None:
    name, runs, corpus = sys.argv[1:]
    target, _ = TARGETS[name]

    def once(data: bytes) -> None:
        try:
            target(data)
        except ALLOWED:
            pass

    options = [
        f"-atheris_runs={runs}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-timeout={INPUT_SECONDS_MAX}",
        "-seed=1",
        "-len_control=10",
    ]
    atheris.Setup([sys.argv[0], *options, corpus], once)
    atheris.Fuzz()


main()
