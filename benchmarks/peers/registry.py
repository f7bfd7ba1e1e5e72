"""The peers, as rows of data: add one here, and its two files beside this one."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Peer:
    """One library on one backend.

    Args:
        title: str, as the tables call it, without version and backend.
        package: str, the distribution whose version is told.
        script: str, the module `benchmarks.peers.SCRIPT` that measures it, and the file
            `SCRIPT.txt` of what its environment needs.
        backend: str, of Keras, or None.
        variant: str, what the tables say after the version.
    """

    title: str
    package: str
    script: str
    backend: str | None = None
    variant: str = ""


_OURS = ("keras_idea", "keras-idea", "keras_idea")
PEERS = {
    "keras_idea-jax": Peer(*_OURS, "jax", ", jax"),
    "keras_idea-tensorflow": Peer(*_OURS, "tensorflow", ", tensorflow"),
    "keras_idea-torch": Peer(*_OURS, "torch", ", torch eager"),
    "fasterai": Peer("fasterai", "fasterai", "fasterai"),
    "torch_pruning": Peer("Torch-Pruning", "torch-pruning", "torch_pruning"),
    "tfmot": Peer("tfmot", "tensorflow-model-optimization", "tfmot"),
    "jaxpruner": Peer("jaxpruner", "jaxpruner", "jaxpruner"),
    "pquant": Peer("pquant-ml", "pquant-ml", "pquant", "torch"),
}
