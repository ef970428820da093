"""The registry's data: one module a topic."""
