"""Every transcript is what the machines answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios.machines import player_of
from tests.scenarios.transcript import DIRECTORY, replayed

TRANSCRIPTS = sorted(DIRECTORY.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_machine_answers_as_the_transcript_says(path: Path) -> None:
    assert replayed(path.read_text(), player_of(path)) == path.read_text()


def test_a_wrong_answer_is_found() -> None:
    [path, *_] = TRANSCRIPTS
    text = path.read_text()
    wrong = text.replace("generation 1", "generation 2", 1)
    assert wrong != text
    assert replayed(wrong, player_of(path)) == text
