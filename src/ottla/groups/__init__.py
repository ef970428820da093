"""Groups: members that share topics, and how far they have read. One machine for each partition of ``__consumer_offsets``."""
