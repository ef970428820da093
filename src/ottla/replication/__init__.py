"""Replication and what readers wait for: fetch sessions, and the purgatory of requests that cannot be answered yet.

Protocol machines without clocks or logs; leader and follower will live here. Who owns the log is the broker's ``replicas``.
"""
