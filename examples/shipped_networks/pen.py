"""Renders handwriting-like digits from predefined strokes with random deformation and thickness."""

import torch
from torch import Tensor

SIDE = 32  # pixels
_SEGMENTS = 32  # line segments per digit

# By digit: variants, each a list of strokes, each a list of points (x, y) in [-1, 1], y downwards.
_STROKES: dict[int, list[list[list[tuple[float, float]]]]] = {
    0: [[[(0.1, -1), (-0.5, -0.6), (-0.6, 0.2), (-0.2, 0.95), (0.35, 0.85), (0.6, 0.1), (0.45, -0.7), (0.1, -1)]]],
    1: [
        [[(0.05, -1), (0, 0), (0, 1)]],
        [[(-0.45, -0.5), (0.1, -1), (0.05, 0), (0.05, 1)]],
        [[(-0.4, -0.5), (0.1, -1), (0.05, 0), (0.05, 0.95)], [(-0.4, 1), (0.5, 0.95)]],
    ],
    2: [
        [[(-0.55, -0.6), (-0.1, -1), (0.45, -0.7), (0.35, -0.1), (-0.2, 0.5), (-0.6, 0.95)], [(-0.6, 0.95), (0.65, 0.9)]],
        [[(-0.5, -0.7), (0.1, -1), (0.5, -0.5), (0.1, 0.3), (-0.45, 0.85), (-0.5, 0.5), (0, 0.7), (0.6, 0.9)]],
    ],
    3: [
        [[(-0.5, -0.8), (0, -1), (0.45, -0.65), (0.3, -0.2), (-0.1, -0.05)],
         [(-0.1, -0.05), (0.4, 0.1), (0.5, 0.55), (0.1, 0.95), (-0.5, 0.8)]],
        [[(-0.5, -0.95), (0.45, -0.95)], [(0.45, -0.95), (-0.05, -0.15)],
         [(-0.05, -0.15), (0.5, 0.2), (0.4, 0.8), (-0.1, 1), (-0.5, 0.8)]],
    ],
    4: [
        [[(-0.1, -1), (-0.35, -0.4), (-0.6, 0.25)], [(-0.6, 0.25), (0.65, 0.2)], [(0.3, -0.4), (0.25, 0.3), (0.2, 1)]],
        [[(0.25, -1), (-0.2, -0.3), (-0.65, 0.35)], [(-0.65, 0.35), (0.65, 0.35)], [(0.25, -1), (0.25, 0), (0.25, 1)]],
    ],
    5: [
        [[(0.55, -0.95), (-0.35, -0.95)], [(-0.35, -0.95), (-0.45, -0.15)],
         [(-0.45, -0.15), (0.1, -0.3), (0.55, 0.1), (0.4, 0.75), (-0.1, 1), (-0.55, 0.8)]],
    ],
    6: [
        [[(0.35, -1), (-0.15, -0.65), (-0.5, 0), (-0.5, 0.6), (-0.05, 1), (0.45, 0.75), (0.45, 0.25), (0, 0.05), (-0.45, 0.4)]],
    ],
    7: [
        [[(-0.55, -0.9), (0.55, -0.95)], [(0.55, -0.95), (0.15, 0), (-0.15, 1)]],
        [[(-0.55, -0.9), (0.55, -0.95)], [(0.55, -0.95), (0.15, 0), (-0.15, 1)], [(-0.3, 0.05), (0.55, 0)]],
    ],
    8: [
        [[(0.45, -0.7), (0, -1), (-0.45, -0.65), (-0.2, -0.2), (0.35, 0.2), (0.5, 0.65), (0, 1), (-0.5, 0.65),
          (-0.3, 0.2), (0.3, -0.25), (0.45, -0.7)]],
    ],
    9: [
        [[(0.45, -0.55), (0.05, -1), (-0.45, -0.65), (-0.35, -0.1), (0.15, -0.05), (0.45, -0.55)],
         [(0.45, -0.55), (0.4, 0.2), (0.25, 1)]],
        [[(0.45, -0.6), (0.05, -1), (-0.45, -0.65), (-0.35, -0.15), (0.15, -0.1), (0.45, -0.6)],
         [(0.45, -0.6), (0.45, 0.3), (0.1, 0.95), (-0.45, 0.85)]],
    ],
}  # fmt: skip


def draw(labels: Tensor, rng: torch.Generator) -> Tensor:
    """Ink (N, 32, 32) in [0, 1] of digits (N,) drawn along deformed strokes."""
    segments = torch.empty(len(labels), _SEGMENTS, 2, 2)
    way = torch.randint(2**31, labels.shape, generator=rng)
    for digit, ways in _STROKES.items():
        for index, strokes in enumerate(ways):
            mine = (labels == digit) & (way % len(ways) == index)
            segments[mine] = _bent(strokes, int(mine.sum()), rng)
    return torch.cat([_pen(part, rng) for part in torch.split(segments, 32)])


def _bent(strokes: list[list[tuple[float, float]]], count: int, rng: torch.Generator) -> Tensor:
    """Line segments (count, 32, 2, 2) along the strokes, whose points are randomly displaced."""
    pieces = []
    for stroke in strokes:
        points = torch.tensor(stroke) + 0.09 * torch.randn(count, len(stroke), 2, generator=rng)
        line = _smooth(points)
        pieces.append(torch.stack([line[:, :-1], line[:, 1:]], dim=2))
    segments = torch.cat(pieces, dim=1)
    return segments[:, torch.linspace(0, segments.shape[1] - 1, _SEGMENTS).round().long()]


def _smooth(points: Tensor, between: int = 4) -> Tensor:
    """Catmull-Rom curves (N, Q, 2) through points (N, P, 2); two points give a straight line."""
    ends = torch.cat([points[:, :1], points, points[:, -1:]], dim=1)[:, None]
    a, b, c, d = ends[:, :, :-3], ends[:, :, 1:-2], ends[:, :, 2:-1], ends[:, :, 3:]
    t = torch.linspace(0, 1, between + 1)[:-1, None, None]
    line = 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
    return torch.cat([line.transpose(1, 2).flatten(1, 2), points[:, -1:]], dim=1)


def _pen(segments: Tensor, rng: torch.Generator) -> Tensor:
    """Ink (N, 32, 32) of segments (N, P, 2, 2) after a random affine map of each digit."""
    count = len(segments)
    affine = random_maps(count, 0.25, 0.1, rng)
    segments = 0.75 * torch.einsum("nij,npqj->npqi", affine[:, :, :2], segments) + affine[:, None, None, :, 2]
    axis = (torch.arange(SIDE) + 0.5) / SIDE * 2 - 1
    pixels = torch.cartesian_prod(axis, axis).flip(1)  # (x, y), row by row
    start, way = segments[:, :, 0], segments[:, :, 1] - segments[:, :, 0]
    length = way.square().sum(-1, keepdim=True).clamp_min(1e-9)
    toward = way @ pixels.T - (start * way).sum(-1, keepdim=True)  # (N, P, pixels): (pixel - start) . way
    away = pixels.square().sum(-1) - 2 * start @ pixels.T + start.square().sum(-1, keepdim=True)
    along = (toward / length).clamp(0, 1)
    distance = (away - along * (2 * toward - along * length)).amin(dim=1).clamp_min(0).sqrt()
    thickness = uniform(rng, 0.07, 0.2, count, 1)
    ink = torch.sigmoid((thickness - distance) / uniform(rng, 0.015, 0.06, count, 1))
    return ink.reshape(count, SIDE, SIDE)


def random_maps(count: int, turn: float, shift: float, rng: torch.Generator) -> Tensor:
    """Random affine maps (N, 2, 3): rotation by up to `turn` radians, shear, scale, shift by up to `shift` half sides."""
    angle = uniform(rng, -turn, turn, count)
    scale, squeeze = uniform(rng, 0.85, 1.15, count), uniform(rng, 0.85, 1.15, count)
    shear = uniform(rng, -0.2, 0.2, count)
    cos, sin = angle.cos() * scale, angle.sin() * scale
    rows = torch.stack([cos * squeeze, shear - sin, sin * squeeze, cos], dim=1).reshape(count, 2, 2)
    return torch.cat([rows, uniform(rng, -shift, shift, count, 2, 1)], dim=2)


def uniform(rng: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    """Uniform random numbers in [low, high) of this shape."""
    return low + (high - low) * torch.rand(shape, generator=rng)
