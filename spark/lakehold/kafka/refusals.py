"""Describes why brokers cannot be reached, from librdkafka's messages and from the certificate that a broker shows."""

from __future__ import annotations

from confluent_kafka import KafkaError

from lakehold.errors import DefinitionError, UpstreamError, UpstreamUnavailable
from lakehold.kafka.connection_options import KafkaOptions, in_words_of_connections
from lakehold.tls import certificate_fault

_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_ALERT = "SSL alert number"
"""Text by which librdkafka reports, as a lost connection, that a broker refuses the client's certificate."""
_UNVERIFIED = "certificate verify failed"


def is_refusal(error: KafkaError | None) -> bool:
    """Return whether a broker answered and refused the client, or the client refused the broker's certificate."""
    return error is not None and (error.code() in _REFUSED or _ALERT in error.str())


def unreachable(options: KafkaOptions, cause: KafkaError | None, timeout_s: float) -> UpstreamUnavailable:
    """Describe why lakehold could not use brokers; `cause` is None if they were only silent."""
    where, reason = f"Kafka at {options.brokers}", "" if cause is None else cause.str()
    if _UNVERIFIED in reason and (found := _certificate_fault(options)):
        return UpstreamUnavailable(
            f"{where} shows a certificate that cannot be trusted",
            code="kafka-refused",
            detail=found,
            hint="Check that SSL TRUSTSTORE LOCATION of the connection has the authority that issued the brokers' "
            "certificates, and that they are valid for the host names in BROKER.",
        )
    if is_refusal(cause):
        return UpstreamUnavailable(
            f"{where} refuses the connection",
            code="kafka-refused",
            detail=f"{in_words_of_connections(reason)}.",
            hint="Check the connection's SASL and SSL options and the user's rights to read the topics.",
        )
    return UpstreamUnavailable(
        f"{where} does not answer",
        code="kafka-unavailable",
        detail=f"{in_words_of_connections(reason)}." if reason else f"It did not answer within {timeout_s:g} s.",
        hint="Check that the broker runs, that this machine reaches it at the address in the connection, and that "
        "SECURITY PROTOCOL is that of the listener.",
    )


def too_large(options: KafkaOptions, error: KafkaError) -> UpstreamError:
    """Describe that brokers refuse a record because of its size, such as the shape of a table with very many partitions."""
    return UpstreamError(
        f"Kafka at {options.brokers} takes no record of this size",
        code="kafka-record-size",
        detail=f"{error.str()}.",
        hint="Raise max.message.bytes of the connector's signal topic, and message.max.bytes of the brokers.",
    )


def unusable(error: KafkaError) -> DefinitionError:
    """Describe why librdkafka takes no client with a connection's options, such as a missing file of certificates."""
    return DefinitionError(
        "the options of a Kafka connection cannot be used",
        code="option-invalid",
        detail=f"{in_words_of_connections(error.str())}.",
        hint="Check that each file of the connection exists on this machine and is PEM.",
    )


def _certificate_fault(options: KafkaOptions) -> str | None:
    """Ask brokers for their certificates, until the reason of one is found: librdkafka does not report it."""
    for broker in options.brokers.split(","):
        host, _, port = broker.strip().rpartition(":")
        found = port.isdecimal() and certificate_fault(
            host.strip("[]"),
            int(port),
            file=options.librdkafka.get("ssl.ca.location"),
            text=options.librdkafka.get("ssl.ca.pem"),
        )
        if found:
            return f"{broker.strip()}: {found}"
    return None
