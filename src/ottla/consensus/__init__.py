"""The metadata quorum in KRaft form, as a machine: who leads, what is committed, who has which part of the metadata log.

It holds no record, touches no file, socket, clock or random number: a shell reports what happened, and does what it returns. The
shell's contract, which is all that the safety of the quorum asks of it:

1. Construct ``Quorum(settings, election, log)`` from what is on disk: ``election_state.decode`` of ``quorum-state`` (None when there is
   none; the directory of a new cluster is formatted with ``ElectionState()``), and a ``LogShape`` of the recovered log and its snapshots.
   Call ``start``.
2. Hand over every event, with the monotonic time in milliseconds, one at a time. No event has to wait:

   ==================================  ===================================================================================================
   ``on_request(token, request)``      a request of another replica, as a flat value of ``calls``; ``wire_form`` translates
   ``on_request_dropped(token)``       its connection has ended before the answer
   ``on_answer(peer, request, a)``     the answer to a request of ``SendRequest``: with that request, because answers may come late, twice,
                                       or when their question no longer matters
   ``on_connection_lost(peer)``        the connection to a peer ended, or could not be made: requests sent on it are lost. Not for mere
                                       silence: a request without an answer is repeated by time
   ``on_peer_dead``, ``_alive(peer)``  how a ``Probe`` ended; nothing when it proved neither
   ``append(epoch, count, records)``   the controller has decided: records for the log, of an established leader alone
   ``on_flushed(end_offset, v)``       an fsync of the log is done: the end offset and ``log_version`` of the last effect that it covers
   ``on_snapshots(snapshots, start)``  snapshots were written or deleted, or the log was deleted up to one
   ``on_tick()``                       ``next_deadline_ms()`` is reached; ask for it again after every event
   ``stop()``                          an orderly end; the process may end once ``has_handed_over``, or after a while without
   ==================================  ===================================================================================================

3. Each of them returns a tuple of effects. Put them at the end of one queue, and carry the queue out from its head, in order, as the
   table in ``effects`` says. While an effect waits for the disk, events go on; their effects wait in the queue. Nothing else is needed
   for "a vote is durable before it is announced", since the announcement comes after it.
4. An effect that fails (a disk error) ends the process, and so does ``Fatal``: what later effects promise must not be announced.
5. Apply records below ``HighWatermark`` only; drop the images of what ``TruncateLog`` cuts; act as the controller between
   ``LeadershipEstablished`` and ``LostLeadership``, once everything below the offset of the former is applied.

A replica that is no voter, by its id or its directory id, is an observer: it follows, is never counted, and never votes.

Modules, each importing only earlier ones: ``calls``, ``election_state``, ``effects``, ``voters``, ``settings``, ``log_shape``, ``roles``,
``state`` (transitions), ``elections``, ``leading``, ``following``, ``quorum``. Source: KIP-595, 630, 853, 966, 996, 1166; the Raft paper.
"""
