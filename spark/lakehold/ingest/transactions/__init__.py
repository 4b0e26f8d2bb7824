"""Whole transactions: where a batch of a source with a TRANSACTION METADATA TOPIC may end.

A batch ends at a commit of the upstream database, so that at every timestamp the tables of the source are what upstream was
after some transaction (`envelopes.md`, "Hard Requirement: Our results are correct"). The rule:

1.  The ENDs of the transaction topic are the commits, in their order. A transaction is *complete* when for every topic of the
    source all events have come that its END counts there. A batch takes the longest run of complete transactions, the oldest
    first, and of each partition exactly their events.
2.  What counts is distinct events, because a connector that was killed sends some again, and of a transaction in the middle of
    which it was restarted those that its END counts (`runs.py`): these can be told when each partition of events was read to
    where it ended behind a look that saw the END, no longer ahead (7), or shows a later transaction. Also, where the partitions
    of a topic are known, a partition that has an event of a later transaction has all of the earlier ones: a connector writes
    each partition in the order of commits. So an event that can never come (deleted, compacted, unreadable) keeps nobody waiting
    for long.
3.  An event of a transaction whose END has not come is never taken, nor anything behind it.
4.  Events repeat from an earlier point: those of transactions that a batch has taken before are known by their place in the
    upstream's log, and are not counted. A batch does not end amid a repetition, where tables would be at an earlier state, but
    where each partition has come again as far as it was.
5.  Records without a transaction pass: tombstones, topics of ENVELOPE UPSERT, rows of snapshots. Counts of tables that the source
    does not have, of logical messages and of signals are nobody's here. But all rows of a snapshot that a connector takes anew
    are in one batch, once tables are readable: it shows one moment upstream, over all tables (`anew.py`).
6.  A connector that begins anew, with a snapshot of all its tables, never ends what it was in the middle of: its events pass, as
    the snapshot shows what the transaction did.
7.  A transaction topic should have one partition. In several, END and BEGIN land anywhere, and a look, which asks for their ends
    one after the other, may see a later END without an earlier one. So it is looked at twice, and the last END taken is one
    that each partition must be past: it shows a later one, or was read to where it ended behind the first look, which saw
    that END or a later one already. What is said so of partitions that show nothing needs an END that is not ahead: what was sent
    before it has been written. That is certain of one in a Kafka transaction, behind which stands a control record, as then all
    of that had been; of others when so much time has passed since as a partition may lag behind the rest.
8.  What was deleted before the source first read it cannot be judged: at the first reading, transactions up to the first one
    that a partition still shows are complete there.
9.  Nothing but its rows tells that a connector began anew. So no END is taken, once tables are readable, before each partition
    shows something later or was read to where it ended behind a look that saw it: rows could stand there that were sent before.
10. A transaction may have no END: TRUNCATE of MySQL and MariaDB, which is its only event and commits by itself. Its BEGIN stands
    for its END. As only the event tells that it is one, a BEGIN behind which nothing was taken is read again, and the END that
    comes next behind one is not taken before each partition has all that was sent before.

Start with `planning.py`, then `cut.py`. `planning.py` and `records.py` use Spark and the reader; all other modules are pure, and
use Arrow and NumPy at most. A look takes one Spark job, at few records or at many:

`records.py`   raw records -> headers: what is needed of each record, as Arrow in the driver
`runs.py`      headers -> runs, the consecutive events of one transaction in one partition
`ends.py`      headers of the transaction topic -> BEGINs and ENDs
`log.py`       runs, BEGINs and ENDs of an offset range: what is judged
`arrival.py`   which transactions are complete
`anew.py`      a snapshot taken anew, whole or not yet
`cut.py`       where the batch ends
`planning.py`  a batch's plan, made larger until something is whole
`waiting.py`   a transaction that does not become complete

`ids.py`           the transactions that ids name, of whole columns
`commit_order.py`  the order in which transactions commit
`unreadable.py`    unreadable records that may be events of a transaction
`naming.py`        the topic of a table that an END counts

What earlier batches have taken is in `lakehold.model.passed`, places in the upstream's log in `lakehold.model.places`.

All records of a batch are looked at, not only those near its end: an event of a transaction that must not be in the batch may
stand anywhere before a repetition.
"""
