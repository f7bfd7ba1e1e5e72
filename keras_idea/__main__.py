"""`python -m keras_idea`: the command line."""

import sys

from keras_idea_cli import main

if __name__ == "__main__":
    sys.exit(main())
