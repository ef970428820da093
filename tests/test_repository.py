"""What holds for every file of the repository."""

import ast
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE_LINES_MAX = 399
LOCKS = ["requirements-build.lock", "requirements-wheels.lock", "requirements.lock"]

# The patterns are put together from pieces, so that this file does not name what it forbids.
REGISTRY_HOSTS = [
    r"pypi" + r"\.(org|python)", r"python" + r"hosted\.org", r"repo\d?\.maven" + r"\.", r"repository\.apache" + r"\.org",
    r"registry\.npmjs" + r"\.", r"--(extra-)?index" + r"-url", r"--trusted" + r"-host", r"arti" + r"factory|nexus\.",
]  # fmt: skip
DIRECTORIES_OF_A_MACHINE = r"(?<![\w.$}~*-])/(" + "|".join(["work", "root", "home", "Users", r"tmp/\w+", "private/tmp"]) + r")(/|\b)"
LOG_DIR = "/" + "tmp/kafka-logs"  # Kafka's default of log.dir, which is part of its reference
FORBIDDEN = re.compile("|".join([*REGISTRY_HOSTS, DIRECTORIES_OF_A_MACHINE]))


def tracked_files() -> list[Path]:
    """Every file that git follows, read from the index; a source tree without git has nothing to hold."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def forbidden_in(text: str) -> list[str]:
    return [match[0] for match in FORBIDDEN.finditer(text) if not text[match.start() :].startswith(LOG_DIR)]


def text_of(path: Path) -> str:
    """A file that is not text has nothing to name."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_no_file_names_a_package_registry_or_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in tracked_files()
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        for word in forbidden_in(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "https://" + "pypi" + ".org/simple", "files." + "python" + "hosted.org", "--index" + "-url x", "repo1." + "maven" + ".org",
        "cd /" + "work/main", "open('/" + "home/me/x')", "/" + "tmp/jars", "PATH=/" + "root/bin", "file:///" + "work/main",
    ],
)  # fmt: skip
def test_the_search_finds_hosts_and_paths(text: str) -> None:
    assert forbidden_in(text)


@pytest.mark.parametrize(
    "text", ["the /tmp directory", "/var/lib/ottla", "a network/work/path", "~/work", "$HOME/home", "sim/root", "/rooted"]
)
def test_the_search_leaves_ordinary_words_alone(text: str) -> None:
    assert not forbidden_in(text)


def test_every_module_can_be_read_in_one_sitting() -> None:
    lengths = {path: len(text_of(path).splitlines()) for path in tracked_files() if path.is_relative_to(ROOT / "src")}
    assert lengths
    found = [f"{path.relative_to(ROOT)}: {length} lines" for path, length in lengths.items() if length > SOURCE_LINES_MAX]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", LOCKS)
def test_everything_locked_is_pinned_and_has_hashes(name: str) -> None:
    text = re.sub(r"^\s*#.*\n", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    entries = [entry for entry in re.split(r"\n(?=\S)", text.strip()) if entry]
    assert len(entries) >= 4
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==\S+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\\n|$))+", entry + "\n"), entry


def test_the_source_distribution_has_every_file() -> None:
    """Its own tests can be run, and made, as here."""
    target = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["sdist"]
    packed = [pattern.removeprefix("/") for pattern in target["include"]] + ["pyproject.toml"]  # the last is there always
    tops = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert not [top for top in tops if not any(fnmatch(top, pattern) for pattern in packed)]


def test_every_room_says_what_lives_there_and_what_may_not() -> None:
    rooms = [path for path in tracked_files() if path.name == "__init__.py" and path.parent.is_relative_to(ROOT / "src" / "ottla")]
    assert len(rooms) > 30
    short = [
        path for path in rooms if path.parent.name != "ottla" and len((ast.get_docstring(ast.parse(text_of(path))) or "").splitlines()) < 3
    ]
    assert not short, short


def test_the_files_that_architecture_names_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py|[a-z_]+\.py)`", text))
    assert len(named) > 60
    everywhere = {path.name for path in tracked_files()}
    missing = [name for name in sorted(named) if not _is_there(name, everywhere)]
    assert not missing, missing


@pytest.mark.parametrize("document", ["README.md", "docs/spark.md"])
def test_the_documents_say_what_spark_s_error_does_not(document: str) -> None:
    """That PySpark finds the source only after an import, and in which Python; tests/spark/test_python.py sees the error itself."""
    error = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: ottla."
    paragraph = next(text for text in (ROOT / document).read_text(encoding="utf-8").split("\n\n") if error in text)
    assert "import ottla.spark" in paragraph
    assert "PYSPARK_PYTHON" in paragraph


def _is_there(name: str, everywhere: set[str]) -> bool:
    """A path below src/ottla or the root; a bare name, that of some file."""
    return (ROOT / "src" / "ottla" / name).exists() or (ROOT / name).exists() or ("/" not in name and name in everywhere)
