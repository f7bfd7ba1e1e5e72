"""`python -m keras_idea`: the command line."""

import sys

from keras_idea.cli import main

sys.exit(main())
