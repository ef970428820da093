"""The partitions that this broker has: their logs, log directories, checkpoints, leadership, and moves between directories.

Followers will live here. What happens by the clock is ``upkeep``'s, what is decided for the cluster ``metadata``'s, and no request
is known here.
"""
