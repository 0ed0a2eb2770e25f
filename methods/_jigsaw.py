"""Jigsaw puzzles of images: tiles of a 3 x 3 grid in one of a few orders that differ at many positions.

References: Noroozi and Favaro, "Unsupervised learning of visual representations by solving jigsaw puzzles", ECCV 2016;
Carlucci et al., "Domain generalization by solving jigsaw puzzles", CVPR 2019.
"""

from functools import cache
from itertools import permutations

import torch
from torch import Tensor

GRID = 3
TILES = GRID**2


@cache
def orders(count: int) -> Tensor:
    """`count` orders (count, 9) of nine tiles, int64, of large Hamming distance; the first leaves all in place.

    Greedy: next comes the order whose smallest distance to those before it is largest, of equals the one with the largest
    sum of distances, then the first in lexicographic order. The same in every run.
    """
    candidates = torch.tensor(list(permutations(range(TILES))), dtype=torch.uint8).T.contiguous()
    chosen, smallest = [0], torch.full(candidates.shape[1:], TILES, dtype=torch.int16)
    total = torch.zeros_like(smallest)
    while len(chosen) < count:
        distance = (candidates != candidates[:, chosen[-1:]]).sum(0, dtype=torch.int16)
        smallest, total = torch.minimum(smallest, distance), total + distance
        chosen.append(int((smallest * TILES * count + total).argmax()))
    return candidates[:, chosen].T.long()


def shuffled(images: Tensor, order: Tensor) -> Tensor:
    """Images (B, C, S, S) whose tile at place i is the one that was at place order[b, i]; order (B, 9).

    Where S is no multiple of 3, the last one or two rows and columns stay as they are.
    """
    side = images.shape[-1] // GRID
    tiles = images[..., : GRID * side, : GRID * side].unfold(2, side, side).unfold(3, side, side).flatten(2, 3)
    moved = tiles.gather(2, order.to(images.device)[:, None, :, None, None].expand_as(tiles))
    rows = moved.unflatten(2, (GRID, GRID)).transpose(3, 4).flatten(4, 5).flatten(2, 3)
    puzzles = images.clone()
    puzzles[..., : GRID * side, : GRID * side] = rows
    return puzzles
