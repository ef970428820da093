"""Membership in a consumer group by the protocol in which the coordinator divides the partitions (KIP-848)."""
