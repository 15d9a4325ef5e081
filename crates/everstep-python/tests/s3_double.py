"""A small S3 in this process, on 127.0.0.1: put, put-if-absent, get, range, head, list, batch delete. It is honest
unless a fault says otherwise. It does not check signatures."""

from __future__ import annotations

import json
import re
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen
from xml.sax.saxutils import escape

PACK = r"/packs/"


class S3Double:
    """`objects` maps "bucket/key" to (bytes, time). Faults are dicts: {"method", "match": regular expression for
    "/bucket/key", and one of "status" (refuse), "hold" (until `release`), "delay" (seconds)}."""

    def __init__(self):
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.faults: list[dict] = []
        self.arrived = threading.Semaphore(0)
        self.gate = threading.Event()
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"double": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads, self._server.block_on_close = True, False
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def options(self) -> dict:
        """For `everstep.Repository`."""
        return {"endpoint_url": self.url, "allow_http": True, "region": "us-east-1"}

    def fault(self, match: str, method: str = "PUT", **what: object) -> None:
        self.faults.append({"method": method, "match": match, "gate": self.gate, **what})

    def release(self) -> None:
        """Ends all faults, and lets go of what is held."""
        self.gate.set()
        self.faults, self.gate = [], threading.Event()

    def wait_for_arrival(self, limit: float = 20.0) -> None:
        """Waits until a request is held."""
        assert self.arrived.acquire(timeout=limit), "no request arrived where one was to be held"

    def close(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()


def control(url: str, **what: object) -> None:
    """Lets a rank in another process script faults: `fault={...}`, `release=True`, `arrival=True` (waits for one)."""
    urlopen(f"{url}/_control", json.dumps(what).encode(), timeout=90).close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: S3Double
    log_message = staticmethod(lambda *_: None)

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        path, query = unquote(url.path), parse_qs(url.query, keep_blank_values=True)
        if path == "/_control":
            return self._control(json.loads(body))
        for fault in list(self.double.faults):
            if fault["method"] == self.command and re.search(fault["match"], path):
                if "status" in fault:
                    return self._error(
                        fault["status"], "AccessDenied" if fault["status"] == 403 else "InternalError"
                    )
                if "delay" in fault:
                    time.sleep(fault["delay"])  # the slowness of a store is what is played here
                else:
                    self.double.arrived.release()
                    fault["gate"].wait(40)
        getattr(self, f"_{self.command.lower()}")(path[1:], query, body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _any

    def _control(self, what: dict) -> None:
        if "fault" in what:
            self.double.fault(**what["fault"])
        if "release" in what:
            self.double.release()
        if "arrival" in what:
            self.double.wait_for_arrival()
        self._reply(200)

    def _put(self, key: str, _: dict, body: bytes) -> None:
        with self.double.lock:
            if self.headers.get("if-none-match") == "*" and key in self.double.objects:
                return self._error(412, "PreconditionFailed")
            self.double.objects[key] = (body, time.time())
        self._reply(200, headers={"ETag": '"0"'})

    def _get(self, key: str, query: dict, _: bytes) -> None:
        if "/" not in key.rstrip("/") and "list-type" in query:
            return self._list(key.rstrip("/"), query)
        if key not in self.double.objects:
            return self._error(404, "NoSuchKey")
        data, modified = self.double.objects[key]
        headers = {"ETag": '"0"', "Last-Modified": formatdate(modified, usegmt=True)}
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
        if span is None:
            return self._reply(200, data, headers)
        first, last = int(span[1]), min(int(span[2]), len(data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._reply(206, data[first : last + 1], headers)

    _head = _get

    def _list(self, bucket: str, query: dict) -> None:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        found = sorted((key[len(bucket) + 1 :], value) for key, value in list(self.double.objects.items()))
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(modified))}</LastModified></Contents>"
            for key, (data, modified) in found
            if key.startswith(prefix) and key > after
        )
        text = f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        self._reply(200, text.encode())

    def _post(self, bucket: str, _: dict, body: bytes) -> None:
        for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            self.double.objects.pop(f"{bucket.rstrip('/')}/{key}", None)
        self._reply(200, b"<DeleteResult></DeleteResult>")

    def _error(self, status: int, code: str) -> None:
        self._reply(status, f"<Error><Code>{code}</Code><Message>by the double</Message></Error>".encode())

    def _reply(self, status: int, body: bytes = b"", headers: dict | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)
