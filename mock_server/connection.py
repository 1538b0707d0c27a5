"""uvicorn's HTTP/1.1 connection, with features that ASGI lacks.

Data files go from the page cache to the socket without a copy (ASGI's ``http.response.zerocopysend``), and faults can
end a connection in the middle of a body.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from io import FileIO
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

EXTENSION = "mock_server.connection"
_FALLBACK_BYTES = 1 << 20


class Connection:
    """The socket of a request."""

    def __init__(self, protocol: H11Protocol) -> None:
        self._protocol = protocol

    async def send_file(self, file: FileIO, offset: int, count: int) -> None:
        """Send ``count`` bytes of the open file as part of the body; the headers must have been sent.

        Raises `ConnectionError` if the client is gone or the file ends early.
        """
        protocol, loop = self._protocol, asyncio.get_running_loop()
        if protocol.cycle.disconnected or protocol.transport.is_closing():
            raise ConnectionResetError("the client has closed the connection")
        # h11 only counts the bytes; they do not pass through it.
        protocol.conn.send_with_data_passthrough(h11.Data(data=cast(bytes, _Length(count))))
        try:
            if protocol.transport.get_extra_info("sslcontext") is not None:
                raise NotImplementedError("encrypted data must pass through this process")
            sent = await loop.sendfile(protocol.transport, file, offset, count, fallback=False)
        except (NotImplementedError, asyncio.SendfileNotAvailableError):
            sent = await self._copy_file(file, offset, count)
        except RuntimeError as error:  # asyncio raises it if the transport is closing
            raise ConnectionResetError("the client has closed the connection") from error
        if sent != count:
            raise ConnectionError("the file became shorter while it was sent")

    async def _copy_file(self, file: FileIO, offset: int, count: int) -> int:
        sent = 0
        file.seek(offset)
        while data := file.read(min(_FALLBACK_BYTES, count - sent)):
            self._protocol.transport.write(data)
            await self._protocol.flow.drain()
            sent += len(data)
        return sent

    def write_raw(self, data: bytes) -> None:
        """Write bytes outside HTTP's framing; `close` must follow instead of an ordinary end of the response."""
        self._protocol.cycle.disconnected = True  # uvicorn must not complete or complain about this response
        self._protocol.transport.write(data)

    async def pour(self, pieces: Iterable[bytes], *, pause: float = 0.0) -> None:
        """Write pieces outside HTTP's framing until there are no more or the connection ends, with ``pause`` seconds
        after each."""
        for piece in pieces:
            if self._protocol.transport.is_closing():
                break
            self.write_raw(piece)
            await asyncio.sleep(pause)
            while self._protocol.transport.get_write_buffer_size() > _FALLBACK_BYTES:
                if self._protocol.transport.is_closing():
                    break
                await asyncio.sleep(0.001)
        self.close()

    def close(self) -> None:
        """Close the connection after the written bytes, even in the middle of a response."""
        self._protocol.cycle.disconnected = True
        self._protocol.transport.close()

    async def reset(self) -> None:
        """Send the written bytes, then close the connection with a TCP reset."""
        transport = self._protocol.transport
        while transport.get_write_buffer_size() and not transport.is_closing():
            await asyncio.sleep(0.001)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.fileno() >= 0:  # unless the client has already closed it
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._protocol.cycle.disconnected = True
        transport.abort()


class ServingProtocol(H11Protocol):
    """uvicorn's h11 protocol; passes a `Connection` to the application in ``scope["extensions"]``."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        application = self.app
        connection = Connection(self)

        async def with_connection(scope: Any, receive: Any, send: Any) -> None:
            scope["extensions"] = {EXTENSION: connection}
            await application(scope, receive, send)

        self.app = with_connection


class _Length:
    """Stands for body bytes of this length that do not pass through h11."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length
