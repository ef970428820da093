"""Bytes to values and back. Knows no API: the declarations are in ``ottla.messages``.

Frames, primitives, and the codecs that are compiled from declarations. Sizes are bounded here before memory is taken.
"""
