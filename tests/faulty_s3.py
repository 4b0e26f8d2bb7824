"""A server in front of an S3 server that counts requests, answers slowly, refuses some, and answers others with 503."""

from __future__ import annotations

import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from lakehold.servers import HOST

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}

_XML = {"Content-Type": "application/xml"}
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_REFUSED = b"<Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_DENIED = b"<Error>" + _REFUSED
_MEET_WITHIN_S = 60.0
_KEY = re.compile(rb"<Key>.*?</Key>")


class FaultyStore(ThreadingHTTPServer):
    """A forwarder of requests.

    Args:
        endpoint: The address of the server behind it.
        delay_s: How long each answer takes, at least.
        failing: Share of requests that are answered with 503.
        denied: Requests whose path has this are answered with 403, unless it is empty.
        seed: Determines which requests, by their order.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, endpoint: str, *, delay_s: float = 0.0, failing: float = 0.0, denied: str = "", seed: int = 0
    ) -> None:
        super().__init__((HOST, 0), _Forwarding)
        self.behind = urlsplit(endpoint).netloc
        self.delay_s = delay_s
        self.failing = failing
        self.denied = denied
        self.undeletable = ""
        """Requests to delete files whose path has this are refused, unless it is empty."""
        self.refuses_deletions_with = 403
        """The status of these refusals. A request for several files is refused whole; with 403 as S3 does it, file by file."""
        self.statuses: Counter[int] = Counter()
        """Answers by status."""
        self.requests: Counter[str] = Counter()
        """Requests by method and kind of object, such as `GET manifest`."""
        self.bytes = 0
        """Bytes in the bodies of requests and answers."""
        self.meetings: dict[str, threading.Barrier] = {}
        """By method and kind of object: requests that are answered only when so many of them have come."""
        self.spans: list[tuple[float, float]] = []
        """When each request came, and when it was answered."""
        self.further_parts = 0
        """Parts of multipart uploads, without the first of each."""
        self._random = random.Random(seed)
        self._choosing = threading.Lock()

    @property
    def endpoint(self) -> str:
        """Return the address for clients."""
        return f"http://{HOST}:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Show an error, but not that a client ended its connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def fails(self, *, is_further_part: bool) -> bool:
        """Return whether the next request fails, and count further parts."""
        with self._choosing:
            self.further_parts += is_further_part
            return self._random.random() < self.failing

    def requested(self, kind: str, size: int) -> None:
        """Count a request with a body of `size` bytes; wait for others if its kind has to."""
        with self._choosing:
            self.requests[kind] += 1
            self.bytes += size
        if kind in self.meetings:
            self.meetings[kind].wait(_MEET_WITHIN_S)

    def answered(self, status: int, size: int, began_s: float) -> None:
        """Count an answer, with a body of `size` bytes, to a request that came at `began_s`."""
        with self._choosing:
            self.statuses[status] += 1
            self.bytes += size
            self.spans.append((began_s, time.perf_counter()))

    def one_after_the_other(self) -> int:
        """Return how many requests waited for each other: the most of which each came after the one before was answered."""
        count, answered_s = 0, 0.0
        for began_s, ended_s in sorted(self.spans, key=lambda span: span[1]):
            if began_s >= answered_s:
                count, answered_s = count + 1, ended_s
        return count


def _kind(path: str) -> str:
    """Name the kind of object that a request is about, by its path; `state` is all of the lake's own tables."""
    split = urlsplit(path)
    name = unquote(split.path).rpartition("/")[2]
    queried = parse_qs(split.query, keep_blank_values=True)
    if "/mz_catalog/" in unquote(path):
        return "state"
    if "delete" in queried or "prefix" in queried or "list-type" in queried:
        return "several"
    if name.endswith(".metadata.json"):
        return "metadata"
    if name.endswith(".puffin") or "-deletes." in name:
        return "deletes"
    if name.endswith(".avro"):
        return "manifest list" if name.startswith("snap-") else "manifest"
    return "data"


class _Forwarding(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer's body would wait until the client acknowledges the headers, which it does after 40 ms.
    disable_nagle_algorithm = True
    server: FaultyStore

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._began_s = time.perf_counter()
        self.server.requested(f"{self.command} {_kind(self.path)}", len(body))
        time.sleep(self.server.delay_s)
        if self.server.fails(is_further_part=int(parse_qs(urlsplit(self.path).query).get("partNumber", ["0"])[0]) > 1):
            self._answer(503, _XML, _BUSY)
            return
        if self.server.denied and self.server.denied in unquote(self.path):
            self._answer(403, _XML, _DENIED)
            return
        if self._deletes(self.server.undeletable, body):
            self._refuse_deletion(body)
            return
        with closing(HTTPConnection(self.server.behind, timeout=60)) as behind:
            behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP | {"expect"}:
                    behind.putheader(name, value)
            behind.putheader("Content-Length", str(len(body)))
            behind.endheaders(body)
            answer = behind.getresponse()
            content = answer.read()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
            if self.command == "HEAD" and (length := answer.getheader("Content-Length")):
                headers["Content-Length"] = length
            self._answer(answer.status, headers, content)

    def _deletes(self, part: str, body: bytes) -> bool:
        paths = unquote(self.path) if self.command == "DELETE" else b"".join(self._keys(body)).decode()
        return bool(part) and part in paths

    def _keys(self, body: bytes) -> list[bytes]:
        """Return the keys, in their tags, of a request that deletes several files."""
        is_several = self.command == "POST" and "delete" in parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return _KEY.findall(body) if is_several else []

    def _refuse_deletion(self, body: bytes) -> None:
        keys = self._keys(body)
        if self.server.refuses_deletions_with == 503:
            self._answer(503, _XML, _BUSY)
        elif keys:
            errors = b"".join(b"<Error>" + key + _REFUSED for key in keys)
            self._answer(200, _XML, b"<DeleteResult>" + errors + b"</DeleteResult>")
        else:
            self._answer(403, _XML, _DENIED)

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.server.answered(status, len(content), self._began_s)
        self.send_response_only(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@contextmanager
def in_front_of(endpoint: str, *, delay_s: float = 0.0, failing: float = 0.0) -> Iterator[FaultyStore]:
    """Run a forwarder until the block ends."""
    with FaultyStore(endpoint, delay_s=delay_s, failing=failing) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        try:
            yield store
        finally:
            store.shutdown()
