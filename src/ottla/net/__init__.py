"""A connection as a machine: which request is answered when."""
