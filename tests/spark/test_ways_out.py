"""Notes of Spark's errors; what errors they are is tried with Spark itself, in test_python.py and test_writer.py."""

import pytest

from ottla.spark.ways_out import METHODS, WAYS_OUT, noting


@pytest.mark.parametrize(("owner", "name"), METHODS, ids=lambda part: getattr(part, "__name__", part))
def test_this_pyspark_has_the_methods_whose_errors_are_looked_at(owner: type, name: str):
    method = getattr(owner, name)
    assert method.__wrapped__.__qualname__ == method.__qualname__ == f"{owner.__name__}.{name}"


@pytest.mark.parametrize("text", WAYS_OUT)
def test_an_error_stays_itself_and_has_its_note_once(text: str):
    error = RuntimeError(text.replace("\\", ""))

    def fail():
        raise error

    with pytest.raises(RuntimeError) as raised:
        noting(noting(fail))()
    assert raised.value is error
    assert error.__notes__ == [WAYS_OUT[text]]


def test_an_error_that_cannot_say_what_it_is_stays_itself():
    class Mute(Exception):
        def __str__(self):
            raise ConnectionError("the JVM is gone")

    def fail():
        raise Mute

    with pytest.raises(Mute):
        noting(fail)()


@pytest.mark.parametrize("text", ["Failed to find the data source: kafka.", "kafka does not support Update mode", ""])
def test_other_errors_and_results_are_left_alone(text: str):
    error = RuntimeError(text)

    def fail():
        raise error

    with pytest.raises(RuntimeError):
        noting(fail)()
    assert not hasattr(error, "__notes__")
    assert noting(divmod)(7, 2) == (3, 1)
