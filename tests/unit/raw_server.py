"""A server that responds with the given bytes over plain HTTP or TLS."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading

# Longer than a test may take, so that a client that waits for each dead address never reaches the last one.
FOR_EVER = 900.0
# Imported by name, so that fixtures which replace time.sleep do not affect it.
pause = threading.Event().wait


class Raw:
    """Respond to each request with the next of ``answers``, and keep repeating the last; ``None`` closes the
    connection.

    An answer is bytes sent at once, or a list of bytes with pauses in between that belong to one request.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: list[bytes | list[bytes]] = []
        self.close_after = True
        self.requests: list[bytes] = []
        self.connections = 0
        self.pause = 0.02
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            self.connections += 1
            with connection:
                while self._request(connection):
                    result = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                    for piece in [result] if isinstance(result, bytes) else result:
                        connection.sendall(piece)
                        pause(self.pause if isinstance(result, list) else 0)
                    if self.close_after:
                        return

    def _request(self, connection: socket.socket) -> bool:
        head = b""
        while b"\r\n\r\n" not in head:
            received = connection.recv(65536)
            if not received:
                return False
            head += received
        head, _, body = head.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        while length is not None and len(body) < int(length[1]):
            body += connection.recv(65536)
        self.requests.append(head + b"\r\n\r\n")
        return True

    def close(self) -> None:
        # Otherwise the accepting thread would keep waiting on this connection.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Deaf:
    """An address that neither accepts nor refuses connections, because its queue is full."""

    def __init__(self, host: str, port: int) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((host, port))
        self._listener.listen(0)
        self._queued: list[socket.socket] = []
        while not self._is_full():
            pass

    def _is_full(self) -> bool:
        sock = socket.socket()
        self._queued.append(sock)
        sock.settimeout(0.2)
        try:
            sock.connect(self._listener.getsockname())
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        for sock in (*self._queued, self._listener):
            sock.close()
