"""`python -m keras_idea_cli`: the command line, which speaks before Keras is there."""

import sys

from keras_idea_cli import main

if __name__ == "__main__":
    sys.exit(main())
