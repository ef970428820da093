"""Replicated machines over partitions of internal topics: the shards that run them, and the groups' coordinators.

Transactions will live here. What a machine decides is in ``ottla.groups``; this room appends, applies and answers.
"""
