"""Muon: momentum whose update is made orthogonal by a few Newton-Schulz steps.

Follows the published method of Keller Jordan and others (2024); matrices of one
shape are orthogonalised together.
"""

from collections import defaultdict

import torch

# Coefficients of the quintic iteration of the published method.
A, B, C = 3.4445, -4.7750, 2.0315


def orthogonalise(stack, rounds=5):
    """Push the singular values of each matrix of `stack` towards one."""
    x = stack.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape].append(p)
            for params in by_shape.values():
                self._update(params, group)

    def _update(self, params, group):
        stack = torch.stack([self._moved(p, group["momentum"]) for p in params])
        rows, columns = stack.shape[-2:]
        scale = group["lr"] * max(1.0, rows / columns) ** 0.5
        for p, update in zip(params, orthogonalise(stack)):
            p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-scale)

    def _moved(self, p, momentum):
        """Nesterov momentum of one gradient."""
        state = self.state[p]
        if "average" not in state:
            state["average"] = torch.zeros_like(p)
        average = state["average"].lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(average, momentum)
