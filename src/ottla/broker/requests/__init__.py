"""From bytes to a handler and back: connections, frames, bursts, back-pressure, quotas, listeners.

Here a request is dispatched, timed, held and answered, whatever it asks for. What it asks for is a handler's business: nothing in
this room knows a topic, a group or a log; produce requests hand over what is to be flushed by a Protocol.
"""
