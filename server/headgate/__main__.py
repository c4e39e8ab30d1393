"""`python -m headgate` is `headgate`."""

import sys

from headgate.cli import main

sys.exit(main())
