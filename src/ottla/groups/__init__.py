"""The group coordinator as a pure machine: commands in, decisions out; no clock, no log, no connection.

Here lives what every kind of group shares: the coordinator, its commands, committed offsets and records. ``classic/`` is the first
kind, whose clients divide partitions among themselves (``client/assignors.py``); ``consumer/`` is the other one, that of KIP-848.
"""
