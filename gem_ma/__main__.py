"""`python -m gem_ma` is `gem-ma`."""

import sys

from gem_ma.cli.main import main

sys.exit(main())
