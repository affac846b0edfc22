"""An HTTP server on a thread of its own, which ends when it is told to and polls nothing."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

log = logging.getLogger("gpu_executor.metrics")

REQUEST_SECONDS = 10.0
"""How long a client may take to say what it wants."""


class HttpServer:
    """Serves a WSGI application from its making until `close()`."""

    def __init__(self, application: WSGIApplication, address: str, port: int) -> None:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self.address = str(where[0])
        kind = _Server6 if family == socket.AF_INET6 else _Server
        self._server = kind((self.address, port), _Handler)
        self._server.set_app(application)
        self.port: int = self._server.server_port
        # It must not keep this object alive.
        self._thread = threading.Thread(
            target=_serve, args=(self._server,), name="gpu-executor metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        """Free the port; a second time does nothing."""
        if not self._server.ending:
            self._server.ending = True
            # The thread waits for a connection, so it gets one.
            with contextlib.suppress(OSError):
                socket.create_connection((self.address, self.port), timeout=1.0).close()
        if self._thread is not threading.current_thread():
            self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # a slow client does not keep the process
    ending = False

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return not self.ending

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client of the metrics went away", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is nothing to write down."""


def _serve(server: _Server) -> None:
    with server:
        while not server.ending:
            server.handle_request()
