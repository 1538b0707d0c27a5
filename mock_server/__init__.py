"""A server of the Delta Sharing protocol over local Delta tables, for demos, tests and benchmarks."""

from __future__ import annotations

from mock_server.app import SharingServer, create_app
from mock_server.config import ServerConfig
from mock_server.errors import ConfigError
from mock_server.running import RunningServer, running

__all__ = ["ConfigError", "RunningServer", "ServerConfig", "SharingServer", "create_app", "running"]
