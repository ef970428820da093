"""The cluster's metadata: its log, and the active controller that decides over its newest image.

The quorum and ZooKeeper will live here. The decisions themselves are pure functions in ``ottla.controller``; what follows from an image
is carried out by the node.
"""
