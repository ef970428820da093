"""The registry's data: one module for each area, with the keys' names, defaults, help and bounds, and one table of the keys without effect.

No code but declarations. What a key does is where it is read; how a value is parsed is ``definition.py``'s.
"""
