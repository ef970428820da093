"""Membership in a consumer group by the protocol in which the coordinator divides the partitions (KIP-848).

``member.py`` is a machine: no clock, no sockets, no topic names. ``membership.py`` is what the consumer has of it; nothing else here is
used outside. The classic protocol is in ``client/group_membership.py``.
"""
