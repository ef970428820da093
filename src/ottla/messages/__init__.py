"""The protocol as data: one module for each API, with the versions that Kafka 4.3 has.

A module declares messages and nothing else; that registers its API. Codecs are ``wire``'s, what a request does is a handler's.
"""
