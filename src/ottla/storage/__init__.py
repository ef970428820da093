"""The log of a partition and the log directory that it is in, over ``ports.Disk``.

Rooms from the ground up: segment, directory, compaction, recovery, log. It knows no broker and no request; work that takes long is a job
that a worker process can do.
"""
