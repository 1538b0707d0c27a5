"""``python -m delta_sharing_client``: the command ``delta-sharing``, for environments where its script is not on the
path."""

from __future__ import annotations

import sys

from delta_sharing_client.cli import main

if __name__ == "__main__":
    sys.exit(main())
