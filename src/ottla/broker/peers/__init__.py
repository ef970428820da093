"""Connections to other nodes of the cluster: requests out, answers by callback.

Here lives what speaks to one node or to several; what is said, and what an answer means, is for other rooms. Nothing here waits for
an answer but the way to the controller, and nothing else is repeated.
"""
