"""The main job's pipeline over the first weeks of the file, checked against pandas. ``make torture`` has the year."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.foreign_clients.broker_process import BrokerProcess

from ottla.client.partitioner import partition_for_key
from ottla.spark.demo.flights import AIRLINES_FILE, FLIGHT_COUNT, FLIGHTS_FILE, Flights, airlines
from ottla.spark.demo.pipeline import QUERIES, start_query
from ottla.spark.demo.results import percentile, read_results, table
from ottla.spark.demo.sending import FLIGHTS, TYPED_WRONG, FlightSender, create_topics, end_offsets, missing, send_airlines

COUNT = 40_000


def file(count: int) -> Any:
    """So many flights, from the first hour on."""
    return pd.read_csv(FLIGHTS_FILE).sort_values("time_hour", kind="stable").head(count)


def recomputed(flights: Any) -> Any:
    """Mean departure delay and flights by origin, airline and day of event time, by another way."""
    flown = flights.dropna(subset=["dep_time", "dep_delay"]).merge(pd.read_csv(AIRLINES_FILE), on="carrier")
    day = pd.to_datetime(flown["time_hour"]).dt.strftime("%Y-%m-%d").rename("day")
    groups = flown.groupby(["origin", flown["name"].rename("airline"), day])["dep_delay"]
    return pd.DataFrame({"mean_departure_delay": groups.mean(), "flights": groups.count()})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_spark_and_pandas_find_the_same_results(spark, tmp_path: Path):
    check_results(spark, tmp_path, COUNT)


def check_results(spark: Any, tmp_path: Path, count: int) -> None:
    """The tables that the pipeline makes of so many flights are those that pandas makes."""
    with BrokerProcess(tmp_path) as broker:
        create_topics(broker.bootstrap, replication_factor=1)
        send_airlines(broker.bootstrap, airlines())
        sender = FlightSender(broker.bootstrap, Flights(count), end_offsets(broker.bootstrap, FLIGHTS))
        sender.start()
        queries = [start_query(spark, broker.bootstrap, tmp_path / "checkpoint", name) for name in QUERIES]
        sender.join()
        assert sender.error is None
        for query in queries:
            query.processAllAvailable()
            query.stop()
        results = read_results(broker.bootstrap, since_ms=0)
        assert sum(end_offsets(broker.bootstrap, FLIGHTS)) == count == sender.sent_count
    found = pd.DataFrame(
        [(row.origin, row.airline, row.day, row.mean_departure_delay, row.flights) for row in results.latest.values()],
        columns=["origin", "airline", "day", "mean_departure_delay", "flights"],
    ).set_index(["origin", "airline", "day"])
    flights = file(count)
    expected = recomputed(flights)
    pd.testing.assert_frame_equal(found.sort_index(), expected.sort_index(), rtol=1e-12)
    assert results.flight_count == expected["flights"].sum()
    late = flights.groupby("carrier")["dep_delay"].max()
    assert {carrier: delay.minutes for carrier, delay in results.longest.items()} == {k: v for k, v in late.items() if v >= 120}
    assert sorted(record.value or b"" for record in results.unreadable) == sorted(TYPED_WRONG)
    assert {dict(record.headers)["topic"] for record in results.unreadable} == {b"typed"}
    assert len(results.latencies_ms) == results.record_count >= len(results.latest)
    text = "\n".join(table(results))
    assert f"{len(expected):,} rows" in text
    assert f"{expected.loc['LGA', 'flights'].sum():,}" in text


def test_flights_come_in_order_of_their_event_time_with_all_columns():
    flights = Flights()
    decoded = [flights.record(index) for index in (0, 1, len(flights) - 1)]
    assert len(flights) == FLIGHT_COUNT
    assert decoded[0][0] == b"UA"
    assert decoded[0][1] == (
        b'{"year":2013,"month":1,"day":1,"dep_time":517,"sched_dep_time":515,"dep_delay":2,"arr_time":830,"sched_arr_time":819,'
        b'"arr_delay":11,"carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR","dest":"IAH","air_time":227,"distance":1400,'
        b'"hour":5,"minute":15,"time_hour":"2013-01-01T10:00:00Z"}'
    )
    hours = [line.rsplit(b",", 1)[1] for line in flights._lines]
    assert hours == sorted(hours)
    assert list(flights.carriers())[:3] == [flights.record(index)[0] for index in range(3)]


def test_a_cancelled_flight_has_null_where_the_file_has_no_time():
    flights = Flights()
    index = next(index for index, line in enumerate(flights._lines) if line.split(b",")[3] == b"NA")
    value = flights.record(index)[1]
    assert flights.cancelled_count() == 8_255
    assert b'"dep_time":null' in value
    assert b'"dep_delay":null' in value


def test_what_is_missing_is_what_partitions_do_not_have_yet():
    keys = [b"a", b"b", b"a", b"c", b"b", b"a"]
    assert list(missing(keys, [0, 0, 0])) == [0, 1, 2, 3, 4, 5]
    partition = partition_for_key(b"a", 3)
    stored = [2 if index == partition else 0 for index in range(3)]
    same = [index for index, key in enumerate(keys) if partition_for_key(key, 3) == partition]
    assert list(missing(keys, stored)) == sorted(set(range(6)) - set(same[:2]))


def test_percentiles_are_of_the_ordered_list():
    assert [percentile([1, 2, 3, 4], fraction) for fraction in (0, 0.5, 0.99, 1.0)] == [1, 3, 4, 4]
