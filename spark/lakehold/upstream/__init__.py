"""Reconcile what a source needs upstream: a connector in Kafka Connect, and a slot, a publication and topics.

The stages are: definitions -> wanted -> found -> steps -> applied. Each database has one connector, one replication slot and
one change stream. lakehold compares what exists upstream with what the definitions say. The steps that lead from one to the
other are safe to repeat: after an interruption the next run finds what is done and continues.
"""
