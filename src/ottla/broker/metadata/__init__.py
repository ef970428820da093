"""The metadata log as one node has it: its replica, the images that its records make, and how newer ones are published.

A lone broker has it as well as a node of a quorum. What is decided is the ``controller``'s; what follows from an image is carried out by
the parts of the node.
"""
