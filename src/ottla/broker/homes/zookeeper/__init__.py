"""A home in ZooKeeper: a broker in ZooKeeper mode, and the controller that one of them is.

What is decided, and what brokers do with it, is the same as with a quorum; here is where the controller is elected, where its decisions are
kept, and how the other brokers get to know them.
"""
