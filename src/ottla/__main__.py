"""``python -m ottla`` is the command ``ottla``."""

from ottla.cli.entry import main

if __name__ == "__main__":
    main()
