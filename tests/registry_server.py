"""A server that answers as Confluent's registry API does: with what a test gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answers = Mapping[str, tuple[int, Any]]
"""By path a status and a body; a body that is None is no JSON."""

NOT_FOUND = (404, {"error_code": 40403, "message": "Schema not found"})


class RegistryServer(ThreadingHTTPServer):
    """What was asked is kept: the path, and who asked."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answers = answers
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        assert isinstance(self.server, RegistryServer)
        self.server.asked.append((path, self.headers.get("Authorization")))
        status, body = self.server.answers.get(path, NOT_FOUND)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"<html>" if body is None else json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Keeps the test's output clean."""


@contextmanager
def registry_server(answers: Answers) -> Iterator[RegistryServer]:
    """A server on a free port of loopback."""
    with RegistryServer(answers) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def subjects(schemas: Mapping[str, Mapping[int, str]]) -> dict[str, tuple[int, Any]]:
    """The answers of a registry that knows these subjects: by name their schemas by id, oldest first."""
    answers: dict[str, tuple[int, Any]] = {}
    for subject, of_subject in schemas.items():
        versions = list(enumerate(of_subject.items(), 1))
        answers[f"/subjects/{subject}/versions"] = (200, [version for version, _ in versions])
        for version, (schema_id, schema) in versions:
            answers[f"/schemas/ids/{schema_id}"] = (200, {"schema": schema})
            body = {"subject": subject, "version": version, "id": schema_id, "schema": schema}
            answers[f"/subjects/{subject}/versions/{version}"] = (200, body)
    return answers
