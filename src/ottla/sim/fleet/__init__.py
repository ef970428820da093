"""Several nodes beside each other, each on a host of its own, with their clients on others, under a schedule of faults.

What is done, what goes wrong, and what must hold afterwards. Each node is a cluster by itself until nodes form one.
"""
