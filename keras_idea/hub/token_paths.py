"""Which tokens a token is merged from, and which of a tokenizer's tokens stay."""

from collections.abc import Callable, Iterable, Mapping

#: The rank of a merge of two neighbors, the lowest first; None: they are not merged.
Rank = Callable[[str, str], float | None]


def merged_from(token: str, rank: Rank) -> list[str]:
    """All that stands in a text while the characters of a token are merged into it.

    Its characters first; each part stands after what it is merged from; the token
    itself is the last. Where a text is merged into this token, no merge crosses its
    ends, so it is merged from the same parts, whatever stands beside it. A token that
    its characters are not merged into is alone in the list.

    Example:
    >>> ranks = {("a", "b"): 0, ("ab", "c"): 1, ("b", "c"): 2}
    >>> merged_from("abc", lambda a, b: ranks.get((a, b)))
    ['a', 'b', 'c', 'ab', 'abc']
    """
    parts = list(token)
    seen = list(parts)
    while len(parts) > 1:
        ranks = [rank(a, b) for a, b in zip(parts, parts[1:], strict=False)]
        known = [(r, place) for place, r in enumerate(ranks) if r is not None]
        if not known:
            return [token]
        _, place = min(known)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        seen.append(parts[place])
    return list(dict.fromkeys(seen))


def most_used(
    tokens: Iterable[str],
    counts: Mapping[str, int],
    kept: Iterable[str],
    size: int,
    rank: Rank,
) -> set[str]:
    """So many tokens: those in `kept`, then by their counts, each after its parts.

    `tokens` are all there are, in the order in which those of one count are taken.
    """
    everything = list(tokens)
    known, stay = set(everything), set(kept)
    for token in sorted(everything, key=lambda t: -counts.get(t, 0)):
        if token in stay:
            continue
        for part in merged_from(token, rank):
            if len(stay) == size:
                return stay
            if part in known:
                stay.add(part)
    return stay
