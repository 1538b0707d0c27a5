"""A server of the Delta Sharing protocol over local Delta tables, for demos, tests and benchmarks."""

from __future__ import annotations

import os
import signal
import sys

# ``python -m mock_server`` is still importing its program: Ctrl-C during these imports prints no traceback either.
if sys.argv[:1] == ["-m"]:
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

from .app import SharingServer, create_app
from .config import ServerConfig
from .errors import ConfigError
from .running import RunningServer, running

__all__ = ["ConfigError", "RunningServer", "ServerConfig", "SharingServer", "create_app", "running"]
