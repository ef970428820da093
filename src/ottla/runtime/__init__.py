"""The real world behind the ports: sockets, files, clocks, signals."""
