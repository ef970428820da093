"""The partitions that this broker has: their logs, log directories, checkpoints, leadership, and moves between directories and brokers.

What happens by the clock is ``upkeep``'s, what is decided for the cluster the ``controller``'s, and no request of a client is known here.
"""
