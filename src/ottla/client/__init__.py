"""The client over ports: connections, cluster metadata, producer, consumer, admin. Its faces are ``ottla.aio`` and ``ottla.sync``.

It speaks to any Kafka broker and shares no code with ottla's but messages, records and the wire. It opens no socket and starts no
thread by itself.
"""
