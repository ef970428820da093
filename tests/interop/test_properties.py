"""Properties files beside java.util.Properties: generated ones, with everything in them that means something."""

from __future__ import annotations

import random
from pathlib import Path

from tests.interop.tools import HERE, program, run

from ottla.config.properties import read_properties
from ottla.errors import KafkaError

FILE_COUNT = 20_000
PIECES = [
    *(
        "a",
        "key",
        "log.dirs",
        "=",
        ":",
        " ",
        "\t",
        "\f",
        "\n",
        "\r",
        "\r\n",
        "\\",
        "\\\\",
        "\\\n",
        "\\\r\n",
        "\\\r",
        "#",
        "!",
        "\\#",
        "\\!",
    ),
    *("\\=", "\\:", "\\ ", "\\t", "\\n", "\\r", "\\f", "\\u0041", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\u12", "\\uzzzz", "\\U0041"),
    *("\\x", "\x00", "\x0b", "\x85", "\xa0", "\xe9", "\xff", '"', "\\\n  \n", "\\\n#", "value", "1", ",", "\\\\\n", "\x1c", "\\u+123"),
]


def test_every_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    rng = random.Random(20260101)
    for number in range(FILE_COUNT):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 24)))
        (tmp_path / f"{number:06d}").write_bytes(text.encode("latin-1"))
    java = program("java", way_to_get_it="apt install default-jdk")
    printed = run(java, HERE / "java_properties" / "ReadProperties.java", tmp_path, seconds_max=300)
    answers = dict(line.split(" ", 1) for line in printed.splitlines())
    assert len(answers) == FILE_COUNT
    for name, java_read in answers.items():
        assert ours(tmp_path / name) == java_read, (tmp_path / name).read_bytes()


def ours(path: Path) -> str:
    try:
        pairs = read_properties(path)
    except KafkaError:
        return "malformed"
    return ",".join(sorted(f"{in_hex(key)}={in_hex(value)}" for key, value in pairs.items()))


def in_hex(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()
