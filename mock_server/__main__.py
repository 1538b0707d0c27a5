"""``python -m mock_server --help``."""

from mock_server.command import app

app(prog_name="python -m mock_server")
