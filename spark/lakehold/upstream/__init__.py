"""What a source wants of a database and of Kafka Connect: definitions -> wanted -> found -> steps -> performed.

One connector, one slot and one stream a database. What is upstream is compared with what the definitions say, and steps lead from
one to the other, each of which does no harm when it is done again: whatever was cut short, the next run finds and goes on with.
"""
