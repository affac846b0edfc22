"""An HTTP server on a thread of its own, which ends when it is told to and polls nothing."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

log = logging.getLogger("gpu_executor.metrics")

REQUEST_SECONDS = 10.0
"""How long a client may take to say what it wants."""
PAUSE_SECONDS = 0.1
"""Before a client is tried again for whom there was no descriptor."""


class HttpServer:
    """Serves a WSGI application from its making until `close()`."""

    def __init__(self, application: WSGIApplication, address: str, port: int) -> None:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self.address = str(where[0])
        kind = _Server6 if family == socket.AF_INET6 else _Server
        with contextlib.ExitStack() as opened:
            # All that ending takes is made now: there may be no descriptor left by then.
            self._waking, woken = map(opened.enter_context, socket.socketpair())
            either = opened.enter_context(selectors.DefaultSelector())
            self._server = opened.enter_context(kind((self.address, port), _Handler))
            self._server.set_app(application)
            self.port: int = self._server.server_port
            for each in (self._server, woken):
                either.register(each, selectors.EVENT_READ)
            # It must not keep this object alive.
            self._thread = threading.Thread(
                target=_serve,
                args=(self._server, woken, either),
                name="gpu-executor metrics",
                daemon=True,
            )
            self._thread.start()
            opened.pop_all()

    @property
    def url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        """Free the port; a second time does nothing."""
        self._server.ending = True
        with self._waking, contextlib.suppress(OSError):  # that it is closed, the second time
            self._waking.send(b"!")
        if self._thread is not threading.current_thread():
            self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # a slow client does not keep the process
    timeout = 0  # `handle_request` waits for nobody: that a client is there is known before
    ending = False

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(PAUSE_SECONDS)  # the client is still there, and would be tried at once
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client of the metrics went away", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is nothing to write down."""


def _serve(server: _Server, woken: socket.socket, either: selectors.BaseSelector) -> None:
    with server, woken, either:
        while not server.ending:
            ready = {key.fileobj for key, _ in either.select()}
            if woken in ready:
                # A child of fork() may have sent something at its end, which is not ours.
                if not woken.recv(1):
                    break  # nobody has the other end any more
            elif server in ready:
                server.handle_request()
