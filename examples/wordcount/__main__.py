"""`python -m examples.wordcount`."""

import sys

from examples.wordcount.run import main

sys.exit(main())
