"""A host on this machine that serves what a test gives it, and fails as real ones do."""

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Host(http.server.ThreadingHTTPServer):
    """Serves ``files`` by their paths, and can break off in the middle or keep silent.

    It notes every request, and the process's limit for silent hosts at that moment.
    """

    def __init__(self, files: dict[str, bytes]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests, self.limits, self.silent_for, self.broken = files, [], [], 0.0, False

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def handle_error(self, request, client_address):
        pass  # the client has hung up

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.lstrip("/")
        self.server.requests.append(path)
        self.server.limits.append(socket.getdefaulttimeout())
        time.sleep(self.server.silent_for)
        content = self.server.files.get(path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.broken else content)

    def log_message(self, *args):
        pass


@contextmanager
def local_host(files: dict[str, bytes]) -> Iterator[Host]:
    host = Host(files)
    threading.Thread(target=host.serve_forever, daemon=True).start()
    try:
        yield host
    finally:
        host.stop()
