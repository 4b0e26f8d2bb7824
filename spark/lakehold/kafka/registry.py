"""The schema registry: schema texts by id, and the schema ids of subjects.

A *subject* has the versions of one schema. Those of a topic are usually named `<topic>-key` and `<topic>-value`. An id is global,
and is in each record that was written with the schema.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.tls import fault_in, unusable_authority

_T = TypeVar("_T")

_NOT_FOUND = 404
_DENIED = (401, 403)


class Registry:
    """A client of a registry with Confluent's API. It keeps schemas that it has read: an id never changes its schema.

    Args:
        url: Its address; several are separated by commas.
        options: Further options of `confluent_kafka.schema_registry.SchemaRegistryClient`, such as
            `basic.auth.user.info`, `bearer.auth.token` and `ssl.ca.location`.
    """

    def __init__(self, url: str, options: Mapping[str, str | int | float] | None = None) -> None:
        self.url = url
        self._client = SchemaRegistryClient({"timeout": 10, "max.retries": 2, **(options or {}), "url": url})
        self._texts: dict[int, str] = {}
        self._unreadable: dict[int, str] = {}

    def schema_text(self, schema_id: int) -> str | None:
        """Fetch the Avro schema with this global id; None if the registry has none or it is of another kind.

        Raises:
            UpstreamUnavailable: The registry does not answer, or refuses the credentials.
        """
        if schema_id not in self._texts and schema_id not in self._unreadable:
            schema: Schema | None = self._if_known(partial(self._client.get_schema, schema_id))
            if schema is None or schema.schema_str is None:
                return None
            kind = schema.schema_type or "AVRO"
            if kind != "AVRO":
                self._unreadable[schema_id] = f"it is of type {kind}, and FORMAT AVRO reads AVRO"
            elif schema.references:
                self._unreadable[schema_id] = "it refers to other schemas, which lakehold does not read"
            else:
                self._texts[schema_id] = schema.schema_str
        return self._texts.get(schema_id)

    def unreadable(self, ids: Iterable[int]) -> dict[int, str]:
        """Return why each of some schemas that were fetched cannot be read, by id; those that can be are left out."""
        return {i: self._unreadable[i] for i in sorted(ids) if i in self._unreadable}

    def subject_ids(self, subject: str) -> frozenset[int]:
        """Fetch the ids of all versions of a subject; empty if the subject does not exist."""
        versions = self._if_known(partial(self._client.get_versions, subject)) or []
        registered = (self._if_known(partial(self._client.get_version, subject, v)) for v in versions)
        return frozenset(r.schema_id for r in registered if r is not None and r.schema_id is not None)

    def schema_texts(self, ids: Iterable[int]) -> dict[int, str]:
        """Fetch the schemas with these ids, in order of id, without those that the registry lacks."""
        texts = {i: self.schema_text(i) for i in sorted(ids)}
        return {i: text for i, text in texts.items() if text is not None}

    def compatibility(self) -> str:
        """Fetch the level at which the registry compares a new schema with earlier ones; empty: it does not say."""
        with suppress(UpstreamUnavailable):
            return self._if_known(self._client.get_compatibility) or ""
        return ""

    def _if_known(self, request: Callable[[], _T]) -> _T | None:
        """Call the registry; None if the requested object does not exist."""
        try:
            return request()
        except SchemaRegistryError as e:
            if e.http_status_code == _NOT_FOUND:
                return None
            if e.http_status_code in _DENIED:
                raise UpstreamUnavailable(
                    f"the schema registry at {self.url} refuses access",
                    code="registry-denied",
                    detail=f"It answered {e.http_status_code}: {e.error_message}.",
                    hint="Check the user and password, or the token, of its connection.",
                ) from e
            raise self._unavailable(f"It answered {e.http_status_code}: {e.error_message}.") from e
        except Exception as e:
            # The client passes on all that its transport and its parser raise, and documents none of it.
            if fault := fault_in(str(e)):
                raise UpstreamUnavailable(
                    f"the schema registry at {self.url} shows a certificate that cannot be trusted",
                    code="registry-untrusted",
                    detail=fault,
                    hint="Check SSL CERTIFICATE AUTHORITY of its connection, and the registry's certificate.",
                ) from e
            raise self._unavailable(f"{type(e).__name__}: {e}.") from e

    def _unavailable(self, detail: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"the schema registry at {self.url} does not answer",
            code="registry-unavailable",
            detail=detail,
            hint="Check that it runs and that its connection has the right URL, then run it again.",
        )


def registry_of(options: Mapping[str, str], *, timeout_s: float) -> Registry:
    """Return the registry for a connection's options `URL`, `USERNAME`, `PASSWORD`, `TOKEN`, `SSL …`, with secret values.

    A process has one client for equal options: it keeps the schemas it has read, and making a client takes a while.
    """
    given = {name.lower().replace("_", "."): value for name, value in options.items()}
    url = given.pop("url", None)
    if not url:
        raise DefinitionError(
            "a schema registry connection needs a URL", code="option-missing", hint="Add URL 'http://host:port'."
        )
    user, password, token = given.pop("username", None), given.pop("password", None), given.pop("token", None)
    if authority := given.pop("ssl.certificate.authority", None):
        given["ssl.ca.location"] = authority
    if user is not None:
        given["basic.auth.user.info"] = f"{user}:{password or ''}"
    if token is not None:
        given["bearer.auth.token"] = token
    try:
        return _shared(os.getpid(), url, frozenset({**given, "timeout": timeout_s}.items()))
    except ValueError as error:
        raise DefinitionError(
            "the options of a schema registry connection cannot be used", code="option-unknown", detail=f"{error}."
        ) from error
    except OSError as error:
        raise unusable_authority("a schema registry", authority or "", error) from error


@lru_cache(maxsize=16)
def _shared(_process: int, url: str, options: frozenset[tuple[str, str | float]]) -> Registry:
    """Return the registry client of one process: connections do not survive a fork."""
    return Registry(url, dict(options))
