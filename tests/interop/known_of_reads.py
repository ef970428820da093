"""What Apache Kafka and ottla may answer differently to those who read, and to requests that are wrong twice."""

from __future__ import annotations

from typing import Final

from tests.interop.both_asked import Known

ORDER: Final = "the request is wrong twice, and one is looked at first"
SHOWN: Final = "of an offset out of range, ottla says where the records are"
OUT_OF_RANGE: Final = (
    *(Known("Fetch", f"partitions.{name}", "-1", None, SHOWN) for name in ("high_watermark", "last_stable_offset", "log_start_offset")),
    Known("Fetch", "aborted_transactions", "", [], "of an error"),
    Known("ListOffsets", "partitions.error_code", "35", "3", ORDER),
)
REFUSED_BATCH: Final = Known("Produce", "partition_responses.log_start_offset", None, "-1", "of an error: no client looks at it then")
