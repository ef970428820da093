"""The protocol as data: one module per API, with the versions that Kafka 4.3 has."""
