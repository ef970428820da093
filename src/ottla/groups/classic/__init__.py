"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the rebalances between them.

A group and its members live here, with all that moves them from state to state. Offsets, records and the coordinator that every
kind of group shares are one room above; nothing here knows them.
"""
