"""The command line: thin commands over the client and the broker, each imported only when it runs."""
