"""The controller of this node, which is the active one or not: what it decides, who its brokers are, what it looks after.

The decisions are pure functions in ``ottla.controller``. Where they are kept, and who is elected, is for its home; how other processes are
seen to live is for ``liveness``.
"""
