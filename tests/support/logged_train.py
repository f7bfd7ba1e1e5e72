"""`keras-idea`, which also writes down what it trains on: a line a batch.

Each line is JSON: the number of the training in this process (0: the model that is
pruned, 1: the one from scratch), the step, and a digest of each row.
"""

import hashlib
import json
import sys

from keras_idea.data import Tokens
from keras_idea.lm.cli import main

batches, trainings = Tokens.batches, []


def logged_batches(corpus, **arguments):
    number = len(trainings)
    trainings.append(arguments)

    def generator():
        pairs = batches(corpus, **arguments)
        for step, (x, y) in enumerate(pairs, start=arguments["start_step"]):
            rows = [hashlib.sha256(row.tobytes()).hexdigest()[:12] for row in x]
            with open("batches.jsonl", "a") as log:
                log.write(json.dumps([number, step, rows]) + "\n")
            yield x, y

    return generator()


Tokens.batches = logged_batches
sys.exit(main())
