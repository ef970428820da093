"""The main job: a year of real flights through three brokers and a PySpark pipeline, and the results read back.

``flights`` has the data, ``place`` the directory and the broker, ``sending`` and ``pipeline`` the two halves that run at the same
time, ``results`` what is read back and printed, ``job`` the complete job.
"""
