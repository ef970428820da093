"""The controller's second home: a broker in ZooKeeper mode, and the controller that one of them is.

Imported only by a broker that is configured so. What is decided, and what brokers do with it, is the same as with a quorum; here is where
the controller is elected, where its decisions are kept, and how the other brokers get to know them.
"""
