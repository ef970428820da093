"""A connection as a machine: which request is answered when, and who is let in.

No sockets and no bytes of requests: those are ``runtime``'s and the broker's.
"""
