"""Murmur2 of a whole column of keys, as ``client.partitioner`` has it of one.

Numpy takes the same four bytes of all keys at once. A long key would make a step of its own of each four bytes, for hardly any
other key: those are hashed one by one. Source: Kafka's default partitioner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.client.partitioner import murmur2

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_AT_ONCE_BYTES_MAX: Final = 256


def positive_hashes(keys: pa.Array) -> npt.NDArray[Any]:
    """Returns the hash of each key of a binary or large_binary column, without its sign bit; of a null it is any number."""
    import numpy as np
    import pyarrow as pa

    if not len(keys):
        return np.empty(0, np.uint32)
    _, offset_buffer, data_buffer = keys.buffers()
    width = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    offsets = np.frombuffer(offset_buffer, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    word_counts = np.where(lengths <= _AT_ONCE_BYTES_MAX, lengths >> 2, 0)

    hashes: npt.NDArray[Any] = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    words = np.ndarray(max(len(data) - 3, 0), "<u4", data, strides=(1,))  # the four bytes from each byte on
    for index in range(int(word_counts.max())):
        rows = np.flatnonzero(word_counts > index)
        mixed: npt.NDArray[Any] = words[starts[rows] + 4 * index] * np.uint32(_M)
        mixed = (mixed ^ (mixed >> 24)) * np.uint32(_M)
        hashes[rows] = hashes[rows] * np.uint32(_M) ^ mixed
    tail_starts = starts + 4 * word_counts
    for rest in (1, 2, 3):
        rows = np.flatnonzero(lengths & 3 == rest)
        tail = np.zeros(len(rows), np.uint32)
        for byte in range(rest):
            tail |= data[tail_starts[rows] + byte].astype(np.uint32) << (8 * byte)
        hashes[rows] = (hashes[rows] ^ tail) * np.uint32(_M)
    hashes = (hashes ^ (hashes >> 13)) * np.uint32(_M)
    hashes ^= hashes >> 15
    for row in np.flatnonzero(lengths > _AT_ONCE_BYTES_MAX).tolist():
        hashes[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return hashes & np.uint32(0x7FFFFFFF)
