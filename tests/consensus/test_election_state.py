"""The file quorum-state: Kafka's form, and what is wrong with a damaged one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.consensus.election_state import ElectionState, decode, encode
from ottla.errors import StorageError

DIRECTORY = bytes(range(16))


@given(
    election=st.builds(ElectionState, st.integers(0, 2**31 - 1), st.integers(-1, 9), st.integers(0, 9), st.binary(min_size=16, max_size=16))
)
def test_what_was_written_is_read(election: ElectionState) -> None:
    assert decode(encode(election)) == election


def test_the_form_with_static_voters_is_kafkas() -> None:
    data = encode(ElectionState(7, 2, 3), voters=(1, 2, 3))
    assert json.loads(data) == {
        "clusterId": "",
        "leaderId": 2,
        "leaderEpoch": 7,
        "votedId": 3,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}],
        "data_version": 0,
    }
    assert decode(data) == ElectionState(7, 2, 3)


def test_the_form_with_directory_ids_is_kafkas() -> None:
    data = encode(ElectionState(7, -1, 3, DIRECTORY))
    assert json.loads(data) == {
        "leaderId": -1,
        "leaderEpoch": 7,
        "votedId": 3,
        "votedDirectoryId": "AAECAwQFBgcICQoLDA0ODw",
        "data_version": 1,
    }


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (encode(ElectionState(3))[:-4], "is not JSON"),
        (b'{"leaderId":-1,"leaderEpoch":3,"votedId":-1}', "has data_version=None"),
        (b'{"leaderId":-1,"leaderEpoch":3,"votedId":-1,"data_version":2}', "has data_version 2; 0 and 1 are known"),
        (b'{"leaderId":-1,"leaderEpoch":-3,"votedId":-1,"data_version":1}', "has leaderEpoch=-3"),
        (b'{"leaderId":-1,"leaderEpoch":"3","votedId":-1,"data_version":1}', "has leaderEpoch='3'"),
        (b'{"leaderId":-1,"leaderEpoch":true,"votedId":-1,"data_version":1}', "has leaderEpoch=True"),
        (b'{"leaderId":-2,"leaderEpoch":3,"votedId":-1,"data_version":1}', "has leaderId=-2"),
        (b'{"leaderId":-1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"AAA","data_version":1}', "has votedDirectoryId='AAA'"),
        (b'{"leaderId":-1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"!!!","data_version":1}', "has votedDirectoryId='!!!'"),
        (encode(ElectionState(3, -1, -1, DIRECTORY)), "has a votedDirectoryId without a votedId"),
    ],
)
def test_a_damaged_file_is_said_to_be(data: bytes, what: str) -> None:
    with pytest.raises(StorageError) as raised:
        decode(data)
    assert what in raised.value.message
    assert "restore it" in raised.value.message
