"""What operators ask a broker over HTTP: metrics, health, readiness."""
