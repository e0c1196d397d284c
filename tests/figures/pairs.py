"""Pairs of distributions for the acceptance rule, all there are on a coarse grid."""

import itertools

_GRID = [
    tuple(x / 4 for x in parts)
    for size in (2, 3, 4)
    for parts in itertools.product(range(5), repeat=size)
    if sum(parts) == 4
]
#: (p, q) in steps of a quarter over two, three and four tokens: zeros, ones, equals.
PAIRS = [(p, q) for p, q in itertools.product(_GRID, repeat=2) if len(p) == len(q)]
