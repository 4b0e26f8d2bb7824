"""A server that answers as Confluent's registry API does, with the answers of a test."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.certificates import Issued

Answers = Mapping[str, tuple[int, Any]]
"""A status and a body by path; the body None stands for an answer that is no JSON."""

NOT_FOUND = (404, {"error_code": 40403, "message": "Schema not found"})


class RegistryServer(ThreadingHTTPServer):
    """A server that records the path and the credentials of each request."""

    def __init__(self, answers: Answers, issued: Issued | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        if issued:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(issued.certificate, issued.key)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.answers = answers
        self.requests: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        """Return the server's address."""
        scheme = "https" if isinstance(self.socket, ssl.SSLSocket) else "http"
        return f"{scheme}://127.0.0.1:{self.server_port}"


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        assert isinstance(self.server, RegistryServer)
        self.server.requests.append((path, self.headers.get("Authorization")))
        status, body = self.server.answers.get(path, NOT_FOUND)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"<html>" if body is None else json.dumps(body).encode())

    do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Suppress the log, which would mix with the test's output."""


@contextmanager
def registry_server(answers: Answers, issued: Issued | None = None) -> Iterator[RegistryServer]:
    """Run a server on a free port of loopback until the block ends, with TLS if it has a certificate."""
    with RegistryServer(answers, issued) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


def subjects(schemas: Mapping[str, Mapping[int, str]]) -> dict[str, tuple[int, Any]]:
    """Return the answers of a registry that has these subjects: by name their schemas by id, oldest first."""
    answers: dict[str, tuple[int, Any]] = {}
    for subject, of_subject in schemas.items():
        versions = list(enumerate(of_subject.items(), 1))
        answers[f"/subjects/{subject}/versions"] = (200, [version for version, _ in versions])
        for version, (schema_id, schema) in versions:
            answers[f"/schemas/ids/{schema_id}"] = (200, {"schema": schema})
            body = {"subject": subject, "version": version, "id": schema_id, "schema": schema}
            answers[f"/subjects/{subject}/versions/{version}"] = (200, body)
    return answers
