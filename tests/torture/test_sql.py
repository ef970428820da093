"""``ottla sql`` as a program: a JVM for each query."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.foreign_clients.broker_process import BrokerProcess

from ottla.sync import Admin, NewTopic, Producer

VALUES = [b'{"customer":"ada","amount":5}', b'{"customer":"bob","amount":1}', b'{"customer":"ada","amount":2}']
QUERY = "select customer, sum(amount) as total from `my-orders` group by customer order by customer"


def test_a_query_is_answered_once_or_followed_until_ctrl_c(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("my-orders", 2, 1)])
        with Producer(broker.bootstrap) as producer:
            for value in VALUES:
                producer.send("my-orders", value).result()
        where = ["--schema", "my-orders=customer string, amount double", "-B", broker.bootstrap, "--master", "local[2]"]
        done = subprocess.run(
            [sys.executable, "-m", "ottla", "sql", QUERY, "--format", "json", *where], capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout)["items"] == [{"customer": "ada", "total": 7.0}, {"customer": "bob", "total": 1.0}]
        wrong = subprocess.run(
            [sys.executable, "-m", "ottla", "sql", "selec * from `my-orders`", *where], capture_output=True, text=True, check=False
        )
        assert (wrong.returncode, "PARSE_SYNTAX_ERROR" in wrong.stderr, "Traceback" in wrong.stderr) == (1, True, False), wrong.stderr

        command = [sys.executable, "-m", "ottla", "sql", "select customer from `my-orders`", "--follow", "--since", "0", *where]
        following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert following.stdout is not None
        lines = sorted(following.stdout.readline() for _ in VALUES)
        os.killpg(following.pid, signal.SIGINT)
        _, errors = following.communicate()
        assert lines == ['{"customer": "ada"}\n', '{"customer": "ada"}\n', '{"customer": "bob"}\n']
        assert (following.returncode, "Traceback" in errors) == (130, False), errors
