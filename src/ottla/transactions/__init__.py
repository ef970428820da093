"""The transaction coordinator as a pure machine: commands in, decisions out; no clock, no log, no connection.

``table.py`` says what is decided in which state, ``transaction.py`` what a transaction becomes, ``coordinator.py`` is the machine.
Producers' ids, clocks and the brokers that write end markers are the runner's.
"""
