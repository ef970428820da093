"""What clients of a cluster did and saw, operation by operation, and what of it cannot be: the verdicts of Jepsen's Kafka workload.

``operations`` is the format, ``judge`` reads a history and names its anomalies, ``logs`` is what a judge knows of the log of a partition.
Nothing here knows a client, a broker or a clock: histories come from tests, from simulations and from files alike.
"""
