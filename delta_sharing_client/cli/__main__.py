"""``python -m delta_sharing_client.cli``, if the command ``delta-sharing`` is not on the path."""

import sys

from delta_sharing_client.cli import main

sys.exit(main())
