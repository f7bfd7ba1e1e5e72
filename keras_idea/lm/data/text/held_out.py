"""Which files of a text are held out for validation: chosen by their names."""

import hashlib


def held_out_files(files: dict[str, bytes], fraction: float) -> set[str]:
    """Names of the files held out; empty where whole files do not come near."""
    total = sum(map(len, files.values()))
    wanted = fraction * total
    chosen: set[str] = set()
    size = 0
    names = sorted(files, key=name_hash)
    for name in names:
        if size + len(files[name]) <= wanted:
            chosen.add(name)
            size += len(files[name])
    if size >= wanted / 2:
        return chosen
    # A few files of like size: the smallest that is no less than wanted, unless
    # it takes more than a third of the text.
    larger = [name for name in names if len(files[name]) > wanted]
    smallest = min(larger, key=lambda name: len(files[name]), default=None)
    if smallest is not None and len(files[smallest]) <= total / 3:
        return {smallest}
    return set()


def name_hash(name: str) -> bytes:
    """Bytes to order names by: the same on every machine, which `hash()` is not."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()
