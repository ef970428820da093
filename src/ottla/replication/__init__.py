"""Replication and what readers wait for: fetch sessions, and the purgatory of requests that cannot be answered yet."""
