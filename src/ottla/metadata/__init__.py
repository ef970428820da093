"""The cluster as one immutable value, folded from a log of typed records."""
