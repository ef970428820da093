"""Groups of the consumer protocol (KIP-848): one heartbeat in place of joins, syncs and rebalances that stop all members.

The coordinator divides the partitions (``assignors.py``) into a target, and moves each member towards it, step by step
(``reconciliation.py``). All of a group is durable, and built from its records alone (``group.py``); ``heartbeats.py`` decides.
"""
