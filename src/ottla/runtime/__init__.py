"""The real world that implements the ports: sockets, files, clocks, signals, worker processes.

The only place, beside ``sim``, that implements ``ports``. Nothing here knows a topic or a request.
"""
