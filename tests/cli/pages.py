"""The blocks of a page of the documentation, to be run as they stand there.

A page has commands in blocks whose first line begins with ``$``, each with what it prints. ``Terminal`` runs them in a shell, and
compares. A page shows one run: what differs between two (``masked``) is compared by its form, a line ``...`` stands for any lines,
``{...}`` for any object, and addresses and directories are those of the page.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tests.waiting import eventually

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SECONDS_MAX: Final = 60
PORT: Final = 9092
"""Of the broker on the pages; those of others follow."""
PORTS: Final = 10
ADDRESS: Final = f"127.0.0.1:{PORT}"
HOME: Final = "~"
"""Where the commands of the pages are typed."""
MARK: Final = "-- the command has ended with"
COLUMNS: Final = frozenset({"PID"})
"""Those of tables whose values differ from run to run."""
VARIABLE: Final = (
    (re.compile(r"^warning: ~/bin/ottla: a unit .*\n", re.MULTILINE), ""),  # the page's reader has it below /opt
    (re.compile(r"^ottla: waiting: .*\n", re.MULTILINE), ""),  # what a machine that is slower waits for
    (re.compile(r"\b20\d\d-\d\d-\d\d(T\d\d:\d\d:\d\d\+00:00)?"), "DATE"),
    (re.compile(r"(?<![\w/])[\w+/]{86}=="), "HMAC"),  # before ids: one may have 22 such characters between two slashes
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\bsupervisor \d+"), "supervisor N"),
    (re.compile(r"\b\d+ is active in epoch \d+"), "N is active"),
    (re.compile(r"(\b\d: )\d+\b(?=[^\n]*3: \d+(?:;|$)|$)", re.MULTILINE), r"\1N"),
    (re.compile(r"\bfrom controller \d+"), "from controller N"),
    (re.compile(r'("(?:timestamp|leader|brokerid|\w+_epoch)":"?)\d+'), r"\1N"),  # of znodes
    (re.compile(r"(?<=  )v\d+(?=  )"), "vN"),
    (re.compile(r"(/controller_epoch  vN  )\d+"), r"\1N"),
    (re.compile(r"\[(\d+(?:,\d+)+)\]"), lambda found: "[" + ",".join(sorted(found[1].split(","))) + "]"),
    (re.compile(r"\b\d[\d,.]* ?(ms|s|/s|MB|GB|files|records were)(?!\w)"), r"N \1"),
)


class Typed(NamedTuple):
    """A command of a page, and what the page says that it prints."""

    command: str
    output: str


def _text(page: str) -> str:
    return (ROOT / page if page == "README.md" else DOCS / page).read_text(encoding="utf-8")


def _fenced(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```$", _text(page), re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The page's blocks of that language, in order."""
    return [text for named, text in _fenced(page) if named == language]


def sessions(page: str) -> list[list[Typed]]:
    """The commands of each of the page's blocks that have some, in order."""
    found = []
    for _, block in _fenced(page):
        first, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        if parts:
            assert not first, f"{page}: a block with commands begins with {first!r}"
            found.append([Typed(command, output) for command, _, output in (part.partition("\n") for part in parts)])
    return found


def masked(text: str, columns: Collection[str] = ()) -> list[str]:
    """The lines, of which two runs have the same.

    Times, ids, amounts of bytes and the like are their names. In tables, the values of ``columns`` are: a number, any of the roles of a
    controller, a list of numbers in order. How wide a column is does not matter.
    """
    for pattern, name in VARIABLE:
        text = pattern.sub(name, text)
    lines, loose = [], set[int]()
    for line in text.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if len(cells) > 1 and (not set(cells).isdisjoint(columns) or all(re.fullmatch(r"[A-Z][A-Z-]*", cell) for cell in cells)):
            loose = {index for index, cell in enumerate(cells) if cell in {*COLUMNS, *columns}}
        elif len(cells) < 2:
            loose = set()
        else:
            cells = [_form(cell) if index in loose else cell for index, cell in enumerate(cells)]
        lines.append("  ".join(cells))
    return lines


def _form(cell: str) -> str:
    if re.fullmatch(r"\d+(,\d+)+", cell):
        return ",".join(sorted(cell.split(",")))
    return "N" if cell.isdigit() else "ROLE" if cell in {"active", "follower", "candidate"} else cell


def is_shown(shown: str, printed: str, columns: Collection[str] = ()) -> bool:
    """Whether the page shows what was printed."""
    lines = (re.escape(line).replace(r"\{\.\.\.\}", r"\{.*\}") + "\n" for line in masked(shown, columns))
    wanted = "".join(r"(?:.*\n)*" if line == "\\.\\.\\.\n" else line for line in lines)
    return re.fullmatch(wanted, "".join(line + "\n" for line in masked(printed, columns))) is not None


def in_a_shell(
    commands: str, directory: Path, environment: Mapping[str, str], *, options: str = "", seconds: float = SECONDS_MAX
) -> subprocess.CompletedProcess[str]:
    """What they print, errors too, is in ``stdout``. ``options`` are bash's."""
    return subprocess.run(
        ["bash", f"-{options}c", commands],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )


class Terminal:
    """Where commands are typed: an empty directory, which is the home of the page's reader, and ports from ``port`` on.

    ``places`` has what is there in place of other directories of the page.
    """

    def __init__(self, directory: Path, port: int, *, places: Mapping[str, str] = MappingProxyType({})) -> None:
        self.directory = directory
        self._port = port
        self._places = places
        programs = directory / "bin"
        programs.mkdir()
        # A page starts brokers at the usual port.
        _program(
            programs / "ottla",
            f'case "$1 $2" in "dev "* | "cluster start") set -- "$@" --port {port};; esac\nexec {sys.executable} -m ottla "$@"',
        )
        _program(programs / "python", f'exec {sys.executable} "$@"')
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "OTTLA_BOOTSTRAP"))}
        self.environment = kept | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(directory),
            "PYTHONPATH": str(ROOT / "src"),
            "OTTLA_BOOTSTRAP": f"127.0.0.1:{port}",
            "COLUMNS": "200",
        }  # fmt: skip

    def moved(self, text: str) -> str:
        """What the page says, at the ports and in the directories of this terminal."""
        for page, place in self._places.items():
            text = text.replace(page, place)
        return re.sub(
            r"\b(127\.0\.\d\.\d|localhost):(\d+)\b",
            lambda found: f"{found[1]}:{int(found[2]) - PORT + self._port}" if 0 <= int(found[2]) - PORT < PORTS else found[0],
            text,
        )

    def told(self, text: str) -> str:
        """What was printed, with the addresses and directories of the page."""
        for step in range(PORTS):
            text = re.sub(rf":{self._port + step}\b", f":{PORT + step}", text)
        for page, place in self._places.items():
            text = text.replace(place, page)
        return text.replace(str(self.directory), HOME)

    def run(self, session: Iterable[Typed], *, columns: Collection[str] = (), seconds: float = SECONDS_MAX) -> None:
        """Each command, one after the other in one shell, prints what the page shows, and succeeds unless the next one is ``echo $?``."""
        session = list(session)
        for (typed, follower), (printed, status) in zip(
            zip(session, [*session[1:], None], strict=True), self._ended([typed.command for typed in session], seconds), strict=True
        ):
            assert is_shown(typed.output, printed, columns), f"$ {typed.command}\n{printed}-- is not what the page shows:\n{typed.output}"
            assert status == 0 or (follower is not None and follower.command == "echo $?"), f"$ {typed.command}\n{printed}-- {status}"

    def type(self, command: str, *, seconds: float = SECONDS_MAX) -> str:
        """What a command that succeeds prints, errors too, with the addresses and directories of the page."""
        [(printed, status)] = self._ended([command], seconds)
        assert status == 0, f"$ {command}\n{printed}-- {status}"
        return printed

    def _ended(self, commands: Sequence[str], seconds: float) -> list[tuple[str, int]]:
        script = "".join(f"(exit ${{status-0}})\n{self.moved(each)}\nstatus=$?; printf '\\n{MARK} %s\\n' $status\n" for each in commands)
        printed = self.told(in_a_shell(script, self.directory, self.environment, seconds=seconds).stdout)
        found = re.findall(rf"(.*?)\n{MARK} (\d+)\n", printed, re.DOTALL)
        assert len(found) == len(commands), printed
        return [(text, int(status)) for text, status in found]

    @contextlib.contextmanager
    def serving(self, typed: Typed, *, columns: Collection[str] = ()) -> Iterator[None]:
        """The command runs, and has printed what the page shows. Then it is interrupted, as by Ctrl-C, and ends well."""
        output = self.directory / "serving.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.moved(typed.command)}"],
                cwd=self.directory,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:

            def printed() -> str:
                assert process.poll() is None, output.read_text()
                return self.told(output.read_text())

            eventually(printed, lambda text: is_shown(typed.output, text, columns))
            yield
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(SECONDS_MAX) in (0, 130), output.read_text()
            assert "Traceback" not in output.read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def python(self, program: str, *, seconds: float = SECONDS_MAX) -> str:
        """What the program prints, errors too, whose broker is the terminal's."""
        path = self.directory / "program.py"
        path.write_text(self.moved(program))
        return self.type(f"python {path}", seconds=seconds)


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
