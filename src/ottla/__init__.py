"""ottla: an event-streaming system in Python that speaks Apache Kafka's wire protocol."""

TYPE_CHECKING = False  # as of typing, which takes milliseconds that a Ctrl-C may come in

__version__ = "0.1.0"

_OF_CLIENTS = ("Admin", "Consumer", "KafkaError", "NewTopic", "Producer", "TopicPartition")

if not TYPE_CHECKING:  # which would take any name then

    def __getattr__(name: str) -> object:
        """Raises AttributeError, or ImportError within an import; for a name of the clients with the module that has it."""
        if name not in _OF_CLIENTS:
            raise AttributeError(f"module 'ottla' has no attribute {name!r}", name=name)
        import opcode
        import sys

        text = f"write `from ottla.sync import {name}`, or with asyncio `from ottla.aio import {name}`"
        caller = sys._getframe(1)
        if caller.f_code.co_code[caller.f_lasti] == opcode.opmap["IMPORT_FROM"]:
            raise ImportError(f"cannot import name {name!r} from 'ottla': {text}", name="ottla")
        raise AttributeError(f"module 'ottla' has no attribute {name!r}: {text}", name=name)
