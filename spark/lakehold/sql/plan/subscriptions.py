"""Checks of subscriptions, views and their tables against the definitions, and the plan of ALTER SUBSCRIPTION.

The output table is the one that CREATE SUBSCRIPTION … INTO names: lakehold appends the output of the SUBSCRIBE to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehold.definitions import Derived, MaterializedView, OnKeyViolation, OptionValue, Subscription, described
from lakehold.errors import DefinitionError
from lakehold.model.lake_definitions import Definitions, DerivedEntry
from lakehold.object_names import full_name_text, object_text
from lakehold.sql.derived_options import with_options
from lakehold.sql.plan.statement_effects import ChangeDefinition, Plan, SetMaxLag
from lakehold.table_layout import NEWEST_FORMAT


def check_subscription(subscription: Subscription, definitions: Definitions) -> None:
    """Check that a subscription's output table is used by nothing else, and that it reads no output table.

    Raises:
        DefinitionError: Another object uses the output table, or the subscription reads an output table.
    """
    into = subscription.into
    other = definitions.subscription_into(into)
    is_taken = definitions.own_table(into) is not None or into in subscription.tables
    if is_taken or (other and other.name != subscription.name):
        owner = f'subscription "{other.name}" publishes to it' if other else "it is read, or filled by lakehold"
        raise DefinitionError(
            f'table "{into}" cannot take the output of subscription "{subscription.name}"',
            code="output-exists",
            detail=f"Its output needs a table of its own; {owner}.",
            hint="Choose another one: CREATE SUBSCRIPTION … INTO namespace.table.",
        )
    _check_inputs(subscription, definitions)


def alter_derived(entry: DerivedEntry, options: Mapping[str, OptionValue | None]) -> Plan:
    """Plan the change of the options of a subscription or view; None sets one to its default."""
    changed = with_options(entry.definition, options)
    if changed == entry.definition:
        return Plan()
    if isinstance(changed, MaterializedView):
        _check_kept_keys(changed)
    # The hold has its own MAX LAG. If the process dies between the two changes, the statement can run again.
    lag = (SetMaxLag(changed, entry.object_id),) if changed.max_lag_ms != entry.definition.max_lag_ms else ()
    return Plan((*lag, ChangeDefinition(changed)))


def _check_kept_keys(view: MaterializedView) -> None:
    if view.on_key_violation is OnKeyViolation.KEEP and (not view.key or view.format_version != NEWEST_FORMAT):
        lacks = f"Its table has format version {view.format_version}" if view.key else "It has no key"
        raise DefinitionError(
            f"materialized view \"{view.full_name}\" cannot have ON KEY VIOLATION = 'keep'",
            code="view-keep",
            detail=f"{lacks}. The option is about a KEY, and needs format version {NEWEST_FORMAT} to tell equal rows apart.",
            hint="Create another view, and then drop this one.",
        )


def check_view(view: MaterializedView, definitions: Definitions) -> None:
    """Check that no other object has the table of a new view, and that it reads neither itself nor an output table.

    Raises:
        DefinitionError: Another object has the name, or the view reads an output table or itself.
    """
    name = view.full_name
    other = definitions.tables.get(name)
    publishing = definitions.subscription_into(name)
    if other is not None or publishing is not None or name in view.tables:
        detail = "Its query reads a table of this name."
        if other is not None:
            detail = f'Source "{other.definition.source}" feeds a table of this name.'
        elif publishing is not None:
            detail = f"{described(publishing).capitalize()} publishes to a table of this name."
        raise DefinitionError(
            f'there cannot be a materialized view "{name}"',
            code="view-name",
            detail=detail,
            hint="Choose another name: a view has a table of its own.",
        )
    _check_inputs(view, definitions)


def _check_inputs(new: Derived, definitions: Definitions) -> None:
    for name in new.tables:
        read = definitions.subscription_into(name)
        if read is not None:
            raise DefinitionError(
                f'table "{name}" is the output of subscription "{read.name}"',
                code="output-read",
                detail=f"An output table cannot be held, so its history could not be kept for {described(new)}.",
                hint=f"Read the tables that it is made from: SHOW CREATE SUBSCRIPTION {read.name}.",
            )


def check_no_output(verb: str, target: str, definitions: Definitions) -> None:
    """Refuse to change the table of a subscription or view by hand: it contains only what lakehold published.

    Args:
        verb: The kind of change, for the error; empty if a statement changes no table.
        target: Full name of the table that a statement would change.
        definitions: The definitions of the lake.

    Raises:
        DefinitionError: `target` is such a table, and `verb` would change it.
    """
    if verb and target in definitions.views:
        raise DefinitionError(
            f'table "{target}" is a materialized view',
            code="table-published",
            detail=f"{verb} by hand would make it differ from its query.",
            hint=f"DROP MATERIALIZED VIEW {full_name_text(target)} drops the view and its table.",
        )
    subscription = definitions.subscription_into(target) if verb else None
    if subscription is not None:
        raise DefinitionError(
            f'subscription "{subscription.name}" publishes to table "{target}"',
            code="table-published",
            detail=f"{verb} by hand would make it differ from what was published.",
            hint=f"DROP SUBSCRIPTION {object_text(subscription.name)} leaves you the table, with CASCADE it drops that, too.",
        )
