"""Cleaning closed segments of a log by key, as a job over files, and the crash-safe renames that install the result.

It knows segments and no log: which log is cleaned, and when, is decided in ``log/compacting.py`` and by the broker.
"""
