"""What a fetch is given: one pass over its partitions, and a policy for each kind of client that fetches.

A pass looks up each partition, keeps to the budget, and makes the answer; what is read of a partition, and when a fetch that waits is
answered, is for the policy of a consumer, of one in a watched session, of a tool that compares replicas, or of a follower. Parsing, waiting
and answering the request is its handler's.
"""
