"""What operators ask a broker over HTTP: metrics, health, readiness.

It reads a broker's ``Status`` and changes nothing. Names of metrics are Kafka's where Kafka has them; what is counted, and where,
belongs to who counts it.
"""
