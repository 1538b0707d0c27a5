"""Two servers cannot use one port."""

from __future__ import annotations

import socket

import pytest

from delta_sharing_client import testing


def test_second_server_cannot_use_the_port_of_the_first(server: testing.Server) -> None:
    port = int(server.profile["endpoint"].rpartition(":")[2].partition("/")[0])
    with pytest.raises(Exception, match=f"port {port}"), testing.running(port=port):
        pass
    with socket.create_connection(("127.0.0.1", port), timeout=30):
        pass  # the first server still listens
