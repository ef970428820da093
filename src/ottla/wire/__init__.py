"""Bytes to values and back. Knows no API: the declarations stand in ``ottla.messages``."""
