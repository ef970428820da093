"""How a node finds out within milliseconds that another process has died, and what may not be concluded from what it sees.

A controller keeps a connection to each broker that serves (``sentinels.py``). When it ends, the broker is probed (``probe.py``). Only a
port that refuses is a proof, of a broker that had answered there, and only while no connection is open that the broker has made itself
(``callers.py``, ``controller_calls.py``); the controller judges (``evidence.py``). All else is silence, which the session timeout judges.
Until it is decided, clients wait (``failing_brokers.py``). When all have died at once, it is asked who listens where a broker is
registered (``address_holders.py``; ``requests/doorstep.py`` answers). Nothing here decides anything about a broker.
"""
