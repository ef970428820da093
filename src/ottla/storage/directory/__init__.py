"""The log directory of one broker and the partition directories in it: identity, names, checkpoints, the epoch file.

It knows names and small files, and no batch. What is in a log file belongs to ``segment``.
"""
