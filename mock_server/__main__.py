"""``python -m mock_server --help``."""

from .command import app

app(prog_name=f"python -m {__package__}")
