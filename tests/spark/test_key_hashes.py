import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.partitioner import murmur2
from ottla.spark.key_hashes import positive_hashes

long_keys = st.integers(250, 262).map(lambda size: (b"\xff\x80abc" * 60)[:size])
keys = st.lists(st.binary(max_size=20) | long_keys)


@given(keys, st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 3))
def test_a_column_has_the_hashes_of_its_keys(column: list[bytes], kind: pa.DataType, cut: int) -> None:
    array = pa.array(column, kind)[cut:]
    assert positive_hashes(array).tolist() == [murmur2(key) & 0x7FFFFFFF for key in column[cut:]]


@pytest.mark.parametrize("column", [[], [None], [b""], [None, b"abc", None, b"abcd"]])
def test_nulls_and_nothing_have_their_places(column: list[bytes | None]) -> None:
    hashes = positive_hashes(pa.array(column, pa.binary())).tolist()
    assert [found if key is not None else None for key, found in zip(column, hashes, strict=True)] == [
        None if key is None else murmur2(key) & 0x7FFFFFFF for key in column
    ]
