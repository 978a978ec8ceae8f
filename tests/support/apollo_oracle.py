"""APOLLO's formulas, for comparison."""

import math

import torch

from apollod.trainer.optim.projector import signs, stream_key


class Oracle:
    """The formulas of the paper, in float64, one line each; keeps the projected gradient and the update whole."""

    def __init__(
        self, name, weight, lr, rank, scale, weight_decay, gap, gamma, limiter_rule, betas=(0.9, 0.999), eps=1e-6
    ):
        self.fall = {"growth": 0.0, "envelope": 0.97}[limiter_rule]
        self.name, self.w, self.m, self.v, self.t, self.prev = name, weight.double().clone(), 0.0, 0.0, 0, None
        self.lr, self.rank, self.scale, self.wd, self.gap, self.gamma = lr, rank, scale, weight_decay, gap, gamma
        self.betas, self.eps, self.limited = betas, eps, 0

    def step(self, step: int, g: torch.Tensor) -> None:
        g, (b1, b2) = g.double(), self.betas
        self.t += 1
        apollo = g.dim() == 2 and min(g.shape) >= self.rank
        r = g
        if apollo:
            right = g.shape[0] >= g.shape[1]
            key = stream_key("projection", 7, self.name, step // self.gap)
            p = signs(key, min(g.shape), self.rank, torch.float64) / math.sqrt(self.rank)
            r = g @ p if right else p.T @ g
        self.m = b1 * self.m + (1 - b1) * r
        self.v = b2 * self.v + (1 - b2) * r * r
        rt = self.m / (self.v.sqrt() + self.eps)
        u, factor = rt, math.sqrt(1 - b2**self.t) / (1 - b1**self.t)
        if apollo:
            dim = 1 if right else 0
            s = rt.norm(dim=dim, keepdim=True) / (r.norm(dim=dim, keepdim=True) + 1e-8)
            u = g * (s if self.scale == "channel" else rt.norm() / (r.norm() + 1e-8))
            limiter = 1.0 if self.prev is None else max(float(u.norm()) / (self.prev + 1e-8), self.gamma) / self.gamma
            self.limited += limiter > 1
            u = u / limiter
            self.prev = max(float(u.norm()), self.fall * (self.prev or 0.0))
            factor *= math.sqrt(min(g.shape) / self.rank)
        self.update_square, self.grad_square = float((factor * u).norm()) ** 2, float(g.norm()) ** 2
        self.w = self.w * (1 - self.lr * self.wd) - self.lr * factor * u
