"""What a broker does by the clock: retention, cleaning, scrubbing, checkpoints, idle connections.

It calls what ``replicas`` offers and decides when; how a log is cleaned or checked is ``ottla.storage``'s.
"""
