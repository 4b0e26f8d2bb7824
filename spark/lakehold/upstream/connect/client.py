"""A client of Kafka Connect's REST interface."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from lakehold.errors import ConnectorError, UpstreamUnavailable
from lakehold.tls import fault_in, unusable_authority
from lakehold.upstream.found.connector_status import ConnectorStatus

_REQUEST_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.1
_REBALANCING = 409

_UNKNOWN = re.compile(r"\bconnector \S+ not found\b|\bunknown connector\b|\bno status found\b", re.IGNORECASE)
"""Messages of a worker about a connector that does not exist."""

_T = TypeVar("_T")


class ConnectClient:
    """A client of one Kafka Connect worker. Use it as a context manager, or close it.

    Every method raises `UpstreamUnavailable` when the worker does not answer and `ConnectorError` when it refuses.

    Args:
        url: Base URL of the worker's REST interface.
        username: User for HTTP's basic authentication, if the worker asks for one.
        password: The user's password.
        authority: PEM file of the authority of the worker's certificate; None: those of `certifi`.
        timeout_s: How long the worker may stay silent.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        authority: str | None = None,
        timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> None:
        self._url = url
        self._timeout_s = timeout_s
        credentials = (username, password or "") if username is not None else None
        try:
            verify = ssl.create_default_context(cafile=authority) if authority else True
        except OSError as error:
            raise unusable_authority("a Kafka Connect", authority or "", error) from error
        self._http = httpx.Client(base_url=url, timeout=timeout_s, auth=credentials, verify=verify)

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client's connections."""
        self.close()

    def close(self) -> None:
        """Close the client's connections."""
        self._http.close()

    def names(self) -> list[str]:
        """List the names of all connectors."""
        return list(self._request("GET", "/connectors").json())

    def writes_transactions(self, connector_class: str) -> bool:
        """Return whether connectors of a class write in Kafka transactions: a worker without support refuses to require it."""
        setting = "exactly.once.support"
        proposed = {"connector.class": connector_class, "tasks.max": "1", setting: "required"}
        return setting not in self._validated("asked", proposed)

    def plugin_version(self, connector_class: str) -> str:
        """Return the version of a class of connectors, as its makers write it; empty: the worker does not have the class."""
        plugins = self._request("GET", "/connector-plugins").json()
        return next((str(each.get("version") or "") for each in plugins if each["class"] == connector_class), "")

    def objections(self, name: str, config: Mapping[str, str]) -> tuple[str, ...]:
        """Return why a worker would refuse the configuration of a connector, in sentences; empty: it would accept it."""
        return tuple(dict.fromkeys(error for errors in self._validated(name, config).values() for error in errors))

    def config(self, name: str) -> dict[str, str] | None:
        """Return the configuration of a connector, without its name; None if there is no such connector."""
        found = self._if_known(lambda: self._request("GET", f"/connectors/{name}/config").json())
        return None if found is None else {key: value for key, value in found.items() if key != "name"}

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change its configuration."""
        self._request("PUT", f"/connectors/{name}/config", json=dict(config))

    def create_stopped(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector that does nothing until it is resumed, and wait until Connect reports it as stopped."""
        self._request("POST", "/connectors", json={"name": name, "config": dict(config), "initial_state": "STOPPED"})
        self._wait_until_stopped(name)

    def delete(self, name: str) -> None:
        """Delete a connector. Its replication slot stays in PostgreSQL and keeps WAL until somebody drops it."""
        self._request("DELETE", f"/connectors/{name}")

    def stop(self, name: str) -> None:
        """Stop a connector and wait until no task is left. It keeps its position, and its configuration may change."""
        self._request("PUT", f"/connectors/{name}/stop")
        self._wait_until_stopped(name)

    def resume(self, name: str) -> None:
        """Resume a stopped connector."""
        self._request("PUT", f"/connectors/{name}/resume")

    def has_position(self, name: str) -> bool:
        """Return whether Connect remembers a connector's position; a connector without one begins with a snapshot."""
        return bool(self._request("GET", f"/connectors/{name}/offsets").json()["offsets"])

    def forget_position(self, name: str) -> None:
        """Delete the position of a stopped connector, so that it begins with a snapshot."""
        self._request("DELETE", f"/connectors/{name}/offsets")

    def restart(self, name: str) -> None:
        """Restart what failed of a connector and its tasks; they continue where they stopped."""
        self._request("POST", f"/connectors/{name}/restart", params={"includeTasks": "true", "onlyFailed": "true"})

    def status(self, name: str) -> ConnectorStatus:
        """Fetch the current status of a connector."""
        answer = self._request("GET", f"/connectors/{name}/status").json()
        states = [answer["connector"], *answer["tasks"]]
        traces = [state["trace"] for state in states if state.get("trace")]
        return ConnectorStatus(
            connector=answer["connector"]["state"],
            tasks=tuple(task["state"] for task in answer["tasks"]),
            trace=traces[0] if traces else "",
        )

    def status_if_known(self, name: str) -> ConnectorStatus | None:
        """Fetch the current status of a connector; None for a moment after it is created, and when it is deleted."""
        return self._if_known(lambda: self.status(name))

    def wait_until_running(self, name: str, timeout_s: float = 60.0) -> None:
        """Wait until a connector and its tasks run.

        Raises:
            ConnectorError: One of them failed, or they do not run in time.
        """

        def runs(status: ConnectorStatus) -> bool:
            if status.is_failed:
                raise ConnectorError(
                    f'connector "{name}" failed',
                    detail=f"{status.reason or 'It gives no reason'}.",
                    hint="Remove the cause, then restart the connector: it continues where it stopped.",
                )
            return status.is_running

        self._wait(name, runs, "does not run", timeout_s)

    def _validated(self, name: str, config: Mapping[str, str]) -> dict[str, list[str]]:
        """Return what is wrong with a configuration, by the names of its options."""
        path = f"/connector-plugins/{config['connector.class']}/config/validate"
        answer = self._request("PUT", path, json={"name": name, **config}).json()
        values = (found["value"] for found in answer["configs"])
        return {value["name"]: value["errors"] for value in values if value["errors"]}

    def _wait_until_stopped(self, name: str) -> None:
        self._wait(name, lambda status: status.connector == "STOPPED" and not status.tasks, "does not stop")

    def _wait(
        self, name: str, reached: Callable[[ConnectorStatus], bool], failing: str, timeout_s: float = 60.0
    ) -> None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            status = self.status_if_known(name)
            if status is not None and reached(status):
                return
            if time.monotonic() > deadline_s:
                raise ConnectorError(
                    f'connector "{name}" {failing} within {timeout_s:.0f} s', detail=f"Its status is {status}."
                )
            time.sleep(_POLL_INTERVAL_S)

    def _if_known(self, request: Callable[[], _T]) -> _T | None:
        try:
            return request()
        except ConnectorError as error:
            if error.code == "connector-missing":
                return None
            raise

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                response = self._http.request(method, path, **arguments)
            except httpx.TransportError as error:
                if fault := fault_in(str(error)):
                    raise UpstreamUnavailable(
                        f"Kafka Connect at {self._url} shows a certificate that cannot be trusted",
                        code="connect-untrusted",
                        detail=fault,
                        hint="Check SSL CERTIFICATE AUTHORITY of its connection, and the worker's certificate.",
                    ) from error
                raise UpstreamUnavailable(
                    f"Kafka Connect at {self._url} does not answer",
                    code="connect-unavailable",
                    detail=f"{error}.",
                    hint="Check that the worker runs, and that this machine reaches it at the address in the connection.",
                ) from error
            passes = _is_rebalancing(response) or _is_fencing(response)
            if not passes or time.monotonic() > deadline_s:
                break
            time.sleep(_POLL_INTERVAL_S)
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise UpstreamUnavailable(
                f"Kafka Connect at {self._url} refuses access",
                code="connect-denied",
                hint="Check the user and password of its connection.",
            )
        if _is_unusual(response) and not self._is_connect():
            # A worker that is starting knows no path at first, so a retry may succeed.
            raise UpstreamUnavailable(
                f"what answers at {self._url} is not Kafka Connect",
                code="connect-missing",
                detail=f"{method} {path} returns {response.status_code}, and GET / does not return a worker's version.",
                hint="URL of its connection must be the address of a worker's REST interface, such as 'http://host:8083'. "
                "The address of a schema registry belongs in a connection TO SCHEMA REGISTRY.",
            )
        if response.is_error:
            missing = response.status_code == httpx.codes.NOT_FOUND
            raise ConnectorError(
                f"Kafka Connect refused {method} {path}",
                code="connector-missing" if missing else None,
                detail=_message(response),
            )
        return response

    def _is_connect(self) -> bool:
        """Return whether a worker answers at `/`, with the Kafka cluster that it serves; also if nothing answers any more."""
        try:
            answer = self._http.get("/").json()
        except httpx.TransportError:
            return True
        except ValueError:
            return False
        return isinstance(answer, dict) and "kafka_cluster_id" in answer


def _is_unusual(response: httpx.Response) -> bool:
    """Return whether a worker would not respond so: the body is not JSON, or a path that all workers have is missing."""
    if response.is_server_error:
        return False
    try:
        answer = response.json() if response.content else None
    except ValueError:
        return True
    is_missing = response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)
    message = str(answer.get("message", "")) if isinstance(answer, dict) else ""
    return response.is_redirect or (is_missing and not _UNKNOWN.search(message))


def _is_rebalancing(response: httpx.Response) -> bool:
    """Return whether a retry will succeed: the worker rebalances. It also answers 409 to a name that is taken, which stays so."""
    return response.status_code == _REBALANCING and "already exists" not in response.text


def _is_fencing(response: httpx.Response) -> bool:
    """Return whether a worker could not change a position for now.

    The worker first fences the transactions of tasks that were killed. It answers 500 while Kafka still ends them.
    """
    return response.status_code == httpx.codes.INTERNAL_SERVER_ERROR and response.request.url.path.endswith("/offsets")


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError):
        return response.text
