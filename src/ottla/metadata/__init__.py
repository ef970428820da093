"""The cluster as one immutable value, folded from a log of typed records.

Images, replay, snapshots. What may be recorded is decided in ``controller``; where records are kept is the broker's metadata log.
"""
