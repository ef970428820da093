"""The client over ports: connections, cluster metadata, producer, consumer, admin. Its faces are ``ottla.aio`` and ``ottla.sync``."""
