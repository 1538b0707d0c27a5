"""The command ``delta-sharing``: what is shared with me, what does it look like, give me the rows."""

from delta_sharing_client.cli.run import main

__all__ = ["main"]
