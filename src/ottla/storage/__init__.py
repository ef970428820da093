"""The log of a partition, and the data folder, over ``ports.Disk``."""
