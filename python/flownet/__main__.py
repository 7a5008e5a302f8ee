"""``python -m flownet``: the same as the command ``flownet``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
