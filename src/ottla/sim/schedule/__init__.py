"""What goes wrong in a run, as data: drawn from a seed, written to a file and read from it, carried out, shrunk when a run fails.

What the hosts do meanwhile, and what must hold afterwards, is not known here.
"""
