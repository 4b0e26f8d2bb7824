"""Checks of connections, and the plan of ALTER CONNECTION. Pure: no secret is read, and no server is contacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakehold.definitions import Connection, ConnectionType, OptionValue, Secret
from lakehold.errors import DefinitionError
from lakehold.kafka.connection_options import kafka_options
from lakehold.model.lake_definitions import Definitions
from lakehold.nearest import did_you_mean
from lakehold.object_names import object_text
from lakehold.sql.plan.statement_effects import ChangeDefinition, Notice, Plan
from lakehold.sql.text.options import CONNECTIONS, UrlOption, spoken
from lakehold.upstream.wanted.database_tls import check_tls

_STAND_IN = 'module required username="user" password="password";'
"""Stands for the value of a secret: it fits each option that takes one."""


def check_connection(connection: Connection) -> None:
    """Check that the options of a connection fit its kind and each other.

    Raises:
        DefinitionError: An option is missing, unknown, or cannot be used beside the others.
    """
    known = CONNECTIONS[connection.type]
    for name, value in connection.options.items():
        if name not in known.known:
            raise _unknown(connection, name)
        if known.known[name] == UrlOption() and "," in str(value):
            raise DefinitionError(
                f'{spoken(name)} of connection "{connection.name}" takes one address',
                code="option-invalid",
                detail=f"Found '{value}'.",
                hint="Name one worker, or an address that leads to all.",
            )
    missing = [name for name in known.required if name not in connection.options]
    if missing:
        raise DefinitionError(
            f'connection "{connection.name}" needs {spoken(missing[0])}',
            code="option-missing",
            hint=f"ALTER CONNECTION … SET ({spoken(missing[0])} = …) changes it; it cannot be reset.",
        )
    texts = {name: _STAND_IN if isinstance(value, Secret) else str(value) for name, value in connection.options.items()}
    match connection.type:
        case ConnectionType.KAFKA:
            kafka_options(texts)
        case ConnectionType.POSTGRES | ConnectionType.MYSQL | ConnectionType.MARIADB:
            check_tls(texts)


def alter_connection(
    connection: Connection, options: Mapping[str, OptionValue | None], definitions: Definitions
) -> Plan:
    """Plan the change of a connection's options; None removes one.

    Its sources use it from their next run on. What they have upstream is then brought to it, as after each change.

    Raises:
        DefinitionError: The options would not fit the connection's kind or each other.
    """
    unknown = [name for name in options if name not in CONNECTIONS[connection.type].known]
    if unknown:
        raise _unknown(connection, unknown[0])
    kept = {name: value for name, value in {**connection.options, **options}.items() if value is not None}
    changed = replace(connection, options=kept)
    check_connection(changed)
    if changed == connection:
        return Plan()
    capturing = [
        n for n in definitions.users_of_connection(connection.name) if definitions.source(n).capture is not None
    ]
    notices = (
        Notice(
            f"the connector of source {name} has the change after its next ingest, or ALTER SOURCE {object_text(name)} REPAIR"
        )
        for name in capturing
    )
    return Plan((ChangeDefinition(changed), *notices))


def _unknown(connection: Connection, name: str) -> DefinitionError:
    kind = connection.type.value.replace("-", " ").upper()
    options = [spoken(known) for known in CONNECTIONS[connection.type].known]
    return DefinitionError(
        f'connection "{connection.name}" TO {kind} has no option {spoken(name)}',
        code="option-unknown",
        hint=did_you_mean(spoken(name), options, f"Its options are {', '.join(options)}."),
    )
