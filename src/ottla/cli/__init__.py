"""The command line: thin commands over the client and the broker, each imported only when it runs.

A command parses, calls and prints. What it calls lives in ``client``, ``broker`` or ``storage``; nothing imports a command.
"""
