"""SQL over topics."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pyspark.errors import ParseException
from pyspark.sql import Row
from pyspark.sql.types import StructType
from tests.quiet import silence
from tests.spark.conftest import Topics
from tests.waiting import eventually

from ottla.cli.schema_types import MEANT, TYPES, schema_problem
from ottla.cli.sql import sql
from ottla.cli.sql_session import _errors_of_spark, _reason, _say
from ottla.cli.sql_text import is_write, split, tables_of, words_of, wrong_start
from ottla.errors import KafkaError
from ottla.spark import defaults
from ottla.spark.queries import follow, make_views, named_in, topics_like
from ottla.spark.reading import AFTER_DELETION, GO_ON
from ottla.spark.time_travel import AsOf, with_views
from ottla.sync import Producer

SCHEMA = "customer string, amount double"


@pytest.fixture(autouse=True)
def _quiet_broker() -> None:
    """Lets the broker, in a thread of this process, log nothing: a line of its upkeep, a minute after its start, was a command's."""
    silence()


def test_the_topics_of_a_query_are_those_whose_names_are_words_of_it():
    query = "select * from `my-orders` o join a.b on o.id = 'orders' where orders_2.x > 1"
    assert named_in(query, ["my-orders", "orders", "a.b", "a", "my", "other", "orders_2"]) == ["a.b", "my-orders", "orders"]
    for text in ("select * from orders--all\nwhere x", "select * from orders/* a */where x", "select * from orders-- a--b\n, `a--b`"):
        assert named_in(text, ["orders", "a", "all", "a--b"]) == ["a--b", "orders"][text.count("`") == 0 :], text


@pytest.mark.parametrize(
    ("query", "made", "views"),
    [
        ("select * from o TIMESTAMP AS OF '2026-01-01'", "select * from `o as of 1` as `o`", [("o", "'2026-01-01'")]),
        ("select o.x from `o` for system_time as of (now() - interval 1 hour) where x", "select o.x from `o as of 1` as `o` where x",
         [("o", "(now() - interval 1 hour)")]),
        ("select * from o timestamp as of ('a)') b, o as c join `a.b` timestamp as of /* ) */ 'x' as d on 1",
         "select * from `o as of 1` b, o as c join `a.b as of 2` as d on 1", [("o", "('a)')"), ("a.b", "'x'")]),
        ("select 'o timestamp as of 1' from o -- o timestamp as of 2\n", None, []),
        ("select `o timestamp as of 1`, timestamp as of from o", None, []),
        ("select * from other timestamp as of 'x' join o", None, []),
        ("select * from o timestamp as", None, []),
    ],
)  # fmt: skip
def test_a_topic_of_a_time_is_a_view_of_its_own(query: str, made: str | None, views: list[tuple[str, str]]):
    found, as_of = with_views(query, ["o", "a.b"])
    assert found == (query if made is None else made)
    assert [(view.topic, view.time) for view in as_of] == views
    assert [view.view for view in as_of] == [f"{topic} as of {index + 1}" for index, (topic, _) in enumerate(views)]


def test_a_time_that_is_no_expression_and_a_version_are_refused():
    for query, word in (
        ("select * from o timestamp as of yesterday", "must be a text"),
        ("select * from o timestamp as of (now(", "must be a text"),
        ("select * from o timestamp as of", "must be a text"),
        ("select * from o version as of 3", "has no versions"),
    ):
        with pytest.raises(KafkaError, match=word):
            with_views(query, ["o"])


def test_tables_are_shown_by_the_patterns_of_spark():
    topics = ["orders", "orders-eu", "Pays", "x"]
    assert topics_like("SHOW TABLES", topics) == ["Pays", "orders", "orders-eu", "x"]
    assert topics_like("show tables like 'order*|pays' ;", topics) == ["Pays", "orders", "orders-eu"]
    assert topics_like("show  tables 'orders'", topics) == ["orders"]
    assert topics_like("show tables like 'o.ders'", topics) == []
    assert topics_like("select * from orders", topics) is None


@pytest.mark.spark
def test_topics_are_tables_by_schema_or_as_text_and_streams(spark, topics: Topics):
    orders, plain = topics.create(2), topics.create()
    now_ms = time.time_ns() // 1_000_000
    with Producer(topics.bootstrap) as producer:
        for number, value in enumerate([b'{"customer":"ada","amount":5}', b'{"customer":"bob","amount":1}', b"?"]):
            producer.send(orders, value, key=b"k%d" % number, timestamp_ms=now_ms - 10_000 + number * 1_000)
    topics.produce(plain, [(b"ada", "Ä".encode()), (None, None)])

    def rows(query: str, **more) -> list:
        make_views(spark, [orders, plain], {orders: SCHEMA}, bootstrap=topics.bootstrap, since_ms=None, is_stream=False, **more)
        return sorted(map(tuple, spark.sql(query).collect()), key=str)

    assert rows(f"select customer, amount, key from `{orders}`") == [("ada", 5.0, "k0"), ("bob", 1.0, "k1"), (None, None, "k2")]
    assert rows(f"select p.value, o.amount from `{orders}` o join `{plain}` p on p.key = o.customer") == [("Ä", 5.0)]
    assert rows(f"select count(*) from `{plain}` where offset > 0") == [(1,)]
    make_views(spark, [orders], {}, bootstrap=topics.bootstrap, since_ms=now_ms - 8_500, is_stream=False)
    assert [row.key for row in spark.sql(f"select key from `{orders}`").collect()] == ["k2"]
    then = [AsOf(f"{orders} as of {late}", orders, f"(timestamp_millis({now_ms - 10_000 + late}))") for late in (-1, 1_000)]
    make_views(spark, [orders], {}, bootstrap=topics.bootstrap, since_ms=None, is_stream=False, as_of=then)
    [[keys, none]] = spark.sql(f"select collect_set(key), (select count(*) from `{then[0].view}`) from `{then[1].view}`").collect()
    assert (sorted(keys), none) == (["k0", "k1"], 0)
    with pytest.raises(KafkaError, match="that is no time since 1970"):
        make_views(spark, [], {}, bootstrap=topics.bootstrap, since_ms=None, is_stream=False, as_of=[AsOf("v", orders, "'soon'")])
    with pytest.raises(KafkaError, match="there is a schema for 'other', which is no topic that the query names"):
        make_views(spark, [orders], {"other": SCHEMA}, bootstrap=topics.bootstrap, since_ms=None, is_stream=False)

    behind = topics.create()
    topics.produce(behind, [(None, b'{"customer":"ada","amount":5}' + end) for end in (b" ", b"x", b"]", b',{"customer":"bob"}')])
    make_views(spark, [behind], {behind: SCHEMA}, bootstrap=topics.bootstrap, since_ms=None, is_stream=False)
    found = spark.sql(f"select customer, amount from `{behind}` order by offset").collect()
    assert [tuple(row) for row in found] == [("ada", 5.0)] + [(None, None)] * 3  # text after the value

    make_views(spark, [orders], {orders: SCHEMA}, bootstrap=topics.bootstrap, since_ms=0, is_stream=True)
    said: list = []
    query = follow(spark.sql(f"select customer, sum(amount) as total from `{orders}` group by customer"), said.extend)
    try:
        eventually(lambda: {tuple(row) for row in said}, lambda found: ("ada", 5.0) in found)
        topics.produce(orders, [(None, b'{"customer":"ada","amount":2}')])
        eventually(lambda: {tuple(row) for row in said}, lambda found: ("ada", 7.0) in found)
    finally:
        query.stop()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "more", "said"),
    [
        ("select custmer from `{}`", [], "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("select o.custmer from `{}` o", [], 'line 1 pos 7; {} has no schema here: --schema {}="custmer string"'),
        ("select id from `{}`", ["--schema", "{}=id map<string, strng>"], '[UNSUPPORTED_DATATYPE] Unsupported data type "STRNG"'),
        ("select 1 / (offset - offset) from `{}`", [], "[DIVIDE_BY_ZERO]"),
        ("select value from `{}` order by value", ["--follow"], "Sorting is not supported"),
        ("select value / 0 from `{}`", ["--follow", "--since", "0"], "Exception: [DIVIDE_BY_ZERO] Division by zero"),
    ],
)
def test_what_spark_refuses_or_fails_at_is_one_line(
    spark: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], query: str, more: list[str], said: str
):
    topic = topics.create()
    topics.produce(topic, [(None, b"1")])
    monkeypatch.setattr(defaults, "session", lambda *_, **__: spark)
    monkeypatch.setattr(defaults, "stop_session", lambda: None)
    arguments = [text.format(topic) for text in (query, *more)]
    found = CliRunner().invoke(sql, [*arguments, "-B", topics.bootstrap])
    assert (found.exit_code, found.stdout) == (1, "")
    [line] = found.stderr.splitlines()
    assert line.startswith("Error: ")
    assert said.replace("{}", topic) in line
    assert "QueryContextLogger" not in capfd.readouterr().err, "Spark's own line, of some kilobytes of JSON"


def test_a_jvm_that_was_killed_is_one_line():
    """It was py4j's traceback."""
    of_py4j = type("Py4JNetworkError", (Exception,), {})
    for error in (of_py4j("Answer from Java side is empty"), ConnectionRefusedError(111, "Connection refused")):
        with pytest.raises(click.ClickException) as found, _errors_of_spark([]):
            raise error
        assert found.value.message == "Spark's JVM has ended, as when it is killed for its memory"


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("select 1; select 2", ["select 1"], "select 2"),
        ("select ';', \";\", `a;``b;` from o; -- one; two\n;; select 2;\n", ["select ';', \";\", `a;``b;` from o", "select 2"], ""),
        ("select 'it\\';s' /* ; /* ; */ ; */ from o;", ["select 'it\\';s' /* ; /* ; */ ; */ from o"], ""),
        ("-- nothing\n/* at all */", [], ""),
        ("select 'a; select 2;", [], "select 'a; select 2;"),
        ("select 1 /* a; b", [], "select 1 /* a; b"),
        ("/* a; b", [], "/* a; b"),
        ("select 1 - 2 / 3;", ["select 1 - 2 / 3"], ""),
    ],
)
def test_a_statement_ends_at_a_semicolon_that_is_not_quoted(text: str, statements: list[str], rest: str):
    assert split(text) == (statements, rest)


@pytest.mark.parametrize(
    ("statement", "writes"),
    [
        ("insert into orders values ('a')", True),
        ("-- first\nUPDATE orders set value = 'a'", True),
        ("from orders insert into others select *", True),
        ("create table x as select * from orders", True),
        ("create or replace temporary view x as select * from orders", False),
        ("select 'insert into', `update` from orders -- delete", False),
        ("with x as (select insert(value, 1, 1, 'a') from orders) select * from x", False),
        ("set spark.sql.ansi.enabled = false", False),
    ],
)
def test_a_statement_that_writes_is_found_without_spark(statement: str, writes: bool):
    assert is_write(words_of(statement)) is writes


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("select * from nosuch", ["nosuch"]),
        ("select * from `no such` n join other.one -- from x\n on true where v = 'from y'", ["no such", "other.one"]),
        ("with a as (select 1), b (x) as (select 2) select * from a join B join c", ["c"]),
        ("select * from range(5)", []),
        ("select 1", []),
        ("describe orders", ["orders"]),
        ("table orders", ["orders"]),
    ],
)
def test_the_tables_of_a_statement_are_those_that_it_does_not_make_itself(statement: str, tables: list[str]):
    assert tables_of(statement) == tables


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("selct 2", "no statement begins with 'selct'; did you mean select?"),
        ("qqq", "no statement begins with 'qqq'; `help` shows what does"),
        ("(select 1)", None),
        ("values 1", None),
        ("insert into x", None),
    ],
)
def test_a_word_that_begins_no_statement_is_found_without_spark(statement: str, said: str | None):
    assert wrong_start(words_of(statement)) == said


@pytest.mark.spark
def test_a_query_of_no_table_is_run_alone_and_after_others(spark: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(defaults, "session", lambda *_, **__: spark)
    monkeypatch.setattr(defaults, "stop_session", lambda: None)
    topic = topics.create()
    for text in ("select 1 as n", f"select 1 as n from `{topic}`; select 1 as n", "with a as (select 1 as n) select n from a"):
        found = CliRunner().invoke(sql, [text, "-B", topics.bootstrap])
        assert (found.exit_code, found.stdout.split()[-2:]) == (0, ["N", "1"]), found.output


@pytest.mark.spark
def test_topics_whose_names_differ_in_case_alone_are_tables_of_their_own(spark: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(defaults, "session", lambda *_, **__: spark)
    monkeypatch.setattr(defaults, "stop_session", lambda: None)
    upper, lower = topics.create(name="Cases"), topics.create(name="cases")
    topics.produce(lower, [(None, b"small")])
    topics.produce(upper, [(None, b"CAPITAL")])
    text = (
        f"select value from `{upper}` union all select value from `{lower}`; create temporary view kept as select value from `{upper}`; "
        f"select '{lower}', value from `{upper}`; select value from `{lower}`; select VALUE from kept"
    )
    found = CliRunner().invoke(sql, [text, "-B", topics.bootstrap])
    spark.catalog.dropTempView("kept")
    assert (found.exit_code, [word for word in found.stdout.split() if word in ("small", "CAPITAL")]) == (
        0,
        ["CAPITAL", "small", "CAPITAL", "small", "CAPITAL"],
    ), found.output


@pytest.mark.spark
def test_statements_have_one_session_and_are_read_from_a_call_a_file_and_a_terminal(
    spark: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    topic = topics.create()
    topics.produce(topic, [(None, b"a;b"), (None, b"c")])
    starts: list[str] = []

    def started(*_: object, **__: object) -> Any:
        starts.append("started")
        return spark

    monkeypatch.setattr(defaults, "session", started)
    monkeypatch.setattr(defaults, "stop_session", lambda: starts.append("stopped"))
    three = (
        f"create temporary view chosen as select value from `{topic}` where value like '%;%';\n"
        f"select * from chosen; -- the first;\nselect count(*) as n from `{topic}`"
    )
    (tmp_path / "three.sql").write_text(three)
    for arguments, typed in (([three], None), (["-f", str(tmp_path / "three.sql")], None), (["-f", "-"], three), ([], three)):
        starts.clear()
        found = CliRunner().invoke(sql, [*arguments, "-B", topics.bootstrap], input=typed)
        spark.catalog.dropTempView("chosen")
        assert (found.exit_code, found.stdout.split(), starts) == (0, ["VALUE", "a;b", "N", "2"], ["started", "stopped"]), found.output
    failed = CliRunner().invoke(
        sql, [f"select count(*) as n from `{topic}`; select x from `{topic}`; select 2 from `{topic}`", "-B", topics.bootstrap]
    )
    assert (failed.exit_code, failed.stdout.split()) == (1, ["N", "2"])

    starts.clear()
    prompts: list[str] = []
    right = f"select value from `{topic}` where offset = 1; select"
    lines = iter(["", "select x", f"from `{topic}`;", f"drop table `{topic}`;", "selct 1;", "help", right])

    def typed_line(prompt: str) -> str:
        prompts.append(prompt)
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", typed_line)
    monkeypatch.setattr("ottla.cli.sql.is_terminal", lambda: True)
    found = CliRunner().invoke(sql, ["-B", topics.bootstrap])
    assert (found.exit_code, found.stdout.split()[-2:], "show tables" in found.stdout) == (0, ["VALUE", "c"], True), found.output
    assert [line[:30] for line in found.stderr.splitlines()] == [
        "a statement ends with a semico",
        "Error: [UNRESOLVED_COLUMN.WITH",
        "Error: drop: ottla sql only re",
        "Error: no statement begins wit",
    ]
    assert prompts == ["ottla> ", "ottla> ", "    -> ", *["ottla> "] * 4, "    -> "]
    assert starts == ["started", "stopped"]


def test_a_row_that_is_followed_has_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]):
    value = "\x1b[2J \x9b31m \u2028 \u202e ä"
    _say([Row(customer=value)])
    line = capsys.readouterr().out.removesuffix("\n")
    assert json.loads(line) == {"customer": value}
    assert line.isprintable()
    assert "ä" in line


@pytest.mark.parametrize("way_out", [AFTER_DELETION, GO_ON])
def test_a_loss_is_said_without_options_that_a_query_does_not_have(way_out: str):
    text = f"[STREAM_FAILED] Traceback (most recent call last):\nottla.spark.reading.DataLossError: orders-0 no longer exists. {way_out}\n"
    assert _reason(text) == "DataLossError: orders-0 no longer exists"


def test_a_query_of_no_topic_is_refused_before_spark_starts_and_tables_are_shown_without_it(topics: Topics):
    topic = topics.create(name="shown-1")
    command = [sys.executable, "-m", "ottla", "sql", "show tables like 'shown*'", "-B", topics.bootstrap]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["TABLE", topic]
    command = [sys.executable, "-m", "ottla", "sql", "help;", "-B", topics.bootstrap]
    assert "show tables" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for arguments, code, word in (
        (["select 1", "--follow"], 1, "names no topic of the cluster; `ottla"),
        (["select * from nosuch"], 1, "there is no topic 'nosuch'; `ottla topic list` shows them"),
        (["select * from `shwon-1`"], 1, "there is no topic 'shwon-1'; did you mean shown-1?"),
        (["select * from `SHOWN-1`"], 1, "there is no topic 'SHOWN-1'; did you mean shown-1?"),
        (["describe `shwon-1`"], 1, "there is no topic 'shwon-1'; did you mean shown-1?"),
        (["selct 2;"], 1, "no statement begins with 'selct'; did you mean select?"),
        (["select 1", "--since", "yesterday"], 2, "time 'yesterday': expected milliseconds, seconds, an ISO date"),
        (["select 1", "--schema", "orders"], 2, "must be TOPIC=COLUMNS"),
        (["select 1", "--schema", "orders=id strng"], 2, "column id has type strng, which Spark does not know; did you mean string?"),
        ([f"select * from `{topic}`", "--schema", "misspelt=id int"], 1, "a schema for 'misspelt', which is no topic that the query names"),
        ([f"select * from `{topic}` timestamp as of 'x'", "--follow"], 2, "leave one of them out"),
        ([f"select * from `{topic}`; insert into `{topic}` values ('a')"], 1, "insert: ottla sql only reads; `ottla produce` writes"),
        ([f"select * from `{topic}`; select 1", "--follow"], 2, "--follow is for one query"),
        ([" -- nothing"], 2, "there is no statement"),
        ([], 2, "there is no statement"),
        (["select 1", "-f", "-"], 2, "not both"),
    ):
        command = [sys.executable, "-m", "ottla", "sql", *arguments, "-B", topics.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert (done.returncode, word in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id string, amount dubble", "column amount has type dubble, which Spark does not know; did you mean double?"),
        ("id: bool", "column id has type bool, which Spark does not know; did you mean boolean?"),
        ("ids array<str>", "column ids has type str, which Spark does not know; did you mean string?"),
        ("id string, amount", "column amount has no type, such as string, long or double"),
        ("id", "column id has no type, such as string, long or double"),
        (" ", "it has no columns: give names with types, such as 'id string, amount double'"),
        ("id string, amount DECIMAL(10,2) NOT NULL COMMENT 'a, b c', `x, y` array<struct<a: int, b map<string, int>>>", None),
        ("struct<id: string>", None),
        ("date date, at timestamp_ntz, i interval day to second, c varchar(3), s string collate UTF8_BINARY", None),
        ("id string,", None),
        ("a.b string", None),
        ("?", None),
    ],
)
def test_types_that_spark_does_not_know_are_found_without_it(columns: str, said: str | None):
    assert schema_problem(columns) == said


@pytest.mark.spark
def test_no_type_that_spark_knows_is_refused(spark: Any):
    sizes = {"char": "(3)", "character": "(3)", "varchar": "(3)", "geometry": "(4326)", "geography": "(4326)"}
    inner = {"array": "<int>", "map": "<int, int>", "struct": "<a: int>"}
    for name in sorted(TYPES):
        kind = name + sizes.get(name, "") + inner.get(name, "")
        made = StructType.fromDDL(f"a {kind}")
        assert isinstance(made, StructType)
        assert made.names == ["a"]
        assert schema_problem(f"a {kind}") is None
    for name in MEANT:
        with pytest.raises(ParseException):
            StructType.fromDDL(f"a {name}")
