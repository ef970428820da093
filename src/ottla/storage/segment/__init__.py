"""One segment: a log file with its offset index and its time index, their names, and walks over batches.

It knows no other segment and no log. What needs more than one segment belongs to ``log`` or ``compaction``.
"""
