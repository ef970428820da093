"""Homes: where the truth about a cluster lives, and how a node lives there (``broker/home.py`` is what they have in common).

What every node does, whatever its home, does not belong here. A home imports no other one; what two of them share is beside them.
"""
