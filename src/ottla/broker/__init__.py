"""The async shell: joins machines, logs and ports into a broker. One process, one broker, one event loop, no locks."""
