"""Who a client is, and what it may do: values in, values out.

No connection, file or clock is here: the threshold of a broker, its gate and its clients ask.
"""
