"""A home in a metadata log that a quorum has: its voters, how a node finds them, and what it reports to the active controller.

The log itself, with this node's replica of it, is ``metadata``'s, which a lone broker has as well.
"""
