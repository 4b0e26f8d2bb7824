"""Checks of subscriptions and their output tables against the definitions.

The output table is the one that CREATE SUBSCRIPTION … INTO names: lakehold appends the output of the SUBSCRIBE to it.
"""

from __future__ import annotations

from lakehold.definitions import Subscription
from lakehold.errors import DefinitionError
from lakehold.model.lake_definitions import Definitions


def check_subscription(subscription: Subscription, definitions: Definitions) -> None:
    """Check that a subscription's output table is used by nothing else, and that it reads no output table.

    Raises:
        DefinitionError: Another object uses the output table, or the subscription reads an output table.
    """
    into = subscription.into
    other = definitions.subscription_into(into)
    if into in definitions.tables or into in subscription.tables or (other and other.name != subscription.name):
        owner = f'subscription "{other.name}" publishes to it' if other else "it is read, or fed by a source"
        raise DefinitionError(
            f'table "{into}" cannot take the output of subscription "{subscription.name}"',
            code="output-exists",
            detail=f"Its output needs a table of its own; {owner}.",
            hint="Choose another one: CREATE SUBSCRIPTION … INTO namespace.table.",
        )
    for name in subscription.tables:
        read = definitions.subscription_into(name)
        if read is not None:
            raise DefinitionError(
                f'table "{name}" is the output of subscription "{read.name}"',
                code="output-read",
                detail="An output table cannot be held, so its history could not be kept for a subscription.",
                hint=f"Subscribe to the tables that it is made from: SHOW CREATE SUBSCRIPTION {read.name}.",
            )


def check_no_output(verb: str, target: str, definitions: Definitions) -> None:
    """Refuse to change an output table by hand: it contains only what its subscription published.

    Args:
        verb: The kind of change, for the error; empty if a statement changes no table.
        target: Full name of the table that a statement would change.
        definitions: The definitions of the lake.

    Raises:
        DefinitionError: `target` is an output table, and `verb` would change it.
    """
    subscription = definitions.subscription_into(target) if verb else None
    if subscription is not None:
        raise DefinitionError(
            f'subscription "{subscription.name}" publishes to table "{target}"',
            code="table-published",
            detail=f"{verb} by hand would make it differ from what was published.",
            hint=f"DROP SUBSCRIPTION {subscription.name} leaves you the table, with CASCADE it drops the table, too.",
        )
