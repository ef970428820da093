"""The log of one partition, from staging a batch to reading it: what a partition asks its log for lives here.

It knows segments, recovery and compaction, and no broker, topic or request. What can be done over closed files alone, or to a
single segment, does not belong here.
"""
