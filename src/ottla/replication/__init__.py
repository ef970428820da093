"""Replication: the leader and the followers of a partition, fetch sessions, and the purgatory of requests that wait.

Protocol machines without clocks and logs. The log of a replica, and its role, are the broker's ``replicas``.
"""
