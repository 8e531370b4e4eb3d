"""A host on this machine that serves what a test gives it, and fails as real ones do."""

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PIECE = 2**13  # bytes that a slow host sends at once


@dataclass
class Way:
    """How a file is served.

    Attributes:
        speed: bytes a second.
        cuts: of the next answers, the bytes after which each breaks off.
        stalls: keep the connection open and silent where it would break off.
        ranges: whether a part of the file can be asked for.
        span: what to say of the part that is sent, instead of the truth.
        moved: another address to ask.
    """

    speed: float = float("inf")
    cuts: list[int] = field(default_factory=list)
    stalls: bool = False
    ranges: bool = True
    span: str = ""
    moved: str = ""


class Host(http.server.ThreadingHTTPServer):
    """Serves ``files`` by their paths, each in its way, and can break off in the middle or keep silent.

    It notes every request, the range that it asked for, and the process's limit for silent hosts at that moment.
    """

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ways, self.silent_for, self.broken = files, {}, 0.0, False
        self.requests, self.ranges, self.limits = [], [], []
        self.stopped = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def handle_error(self, request, client_address):
        pass  # the client has hung up

    def stop(self) -> None:
        self.stopped.set()
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.lstrip("/")
        way = self.server.ways.get(path, Way())
        self.server.requests.append(path)
        self.server.ranges.append(self.headers.get("Range"))
        self.server.limits.append(socket.getdefaulttimeout())
        time.sleep(self.server.silent_for)
        if way.moved:
            self.send_response(302)
            self.send_header("Location", way.moved)
            self.end_headers()
            return
        content = self.server.files.get(path)
        if content is None:
            self.send_error(404)
            return
        start = int(self.headers["Range"][6:-1]) if way.ranges and "Range" in self.headers else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send_header("Content-Range", way.span or span)
        content = content[start:]
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        sent = content[: len(content) // 2] if self.server.broken else content[: way.cuts.pop(0) if way.cuts else None]
        for place in range(0, len(sent), PIECE):
            self.wfile.write(sent[place : place + PIECE])
            self.server.stopped.wait(PIECE / way.speed)
        if way.stalls and len(sent) < len(content):
            self.server.stopped.wait()

    def log_message(self, *args):
        pass


@contextmanager
def local_host(files: dict[str, bytes]) -> Iterator[Host]:
    host = Host(files)
    threading.Thread(target=host.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield host
    finally:
        host.stop()


@contextmanager
def answers(raw: bytes, then: bytes = b"", pause: float = 0.05) -> Iterator[str]:
    """The address of a host that answers each request with these bytes, and hangs up, or goes on with ``then``."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # it is closed
                    return
                with connection, suppress(OSError):  # the other side has hung up
                    connection.recv(2**16)
                    connection.sendall(raw)
                    while then and not ended.wait(pause):
                        connection.sendall(then)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/file"
        ended.set()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
