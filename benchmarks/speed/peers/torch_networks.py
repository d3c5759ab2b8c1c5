"""The paper's networks in PyTorch: `build(options, device)` returns a module that maps (t [batch], u [batch, ...])."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from settings import TIME_SCALE, UNETS


class Sinusoids(nn.Module):
    def __init__(self, width):
        super().__init__()
        w = TIME_SCALE * torch.exp(-math.log(1e4) * torch.arange(width // 2) / (width // 2))
        self.register_buffer("w", w, persistent=False)

    def forward(self, t):
        angle = t[:, None] * self.w
        return torch.cat([torch.cos(angle), torch.sin(angle)], -1)


class MLP(nn.Module):
    def __init__(self, options):
        super().__init__()
        size = math.prod(options.shape)
        widths = [size + 32, 128, 256, 256, 256, 128, size]
        self.code = Sinusoids(32)
        self.layers = nn.ModuleList([nn.Linear(i, o) for i, o in zip(widths, widths[1:])])

    def forward(self, t, u):
        x = torch.cat([u.reshape(len(u), -1), self.code(t)], -1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x).reshape(u.shape)


class Block(nn.Module):
    def __init__(self, conv, i, o, code, padding):
        super().__init__()
        self.c1, self.n1 = conv(i, o, 3, padding=1, padding_mode=padding), nn.GroupNorm(8, o)
        self.c2, self.n2 = conv(o, o, 3, padding=1, padding_mode=padding), nn.GroupNorm(8, o)
        self.t = nn.Linear(code, o)

    def forward(self, x, e):
        x = F.silu(self.n1(self.c1(x)))
        shift = self.t(e)
        x = x + shift.view(*shift.shape, *[1] * (x.ndim - 2))
        return F.silu(self.n2(self.c2(x)))


class UNet(nn.Module):
    def __init__(self, options):
        super().__init__()
        axes, c = len(options.shape) - 1, options.shape[-1]
        channels, code, hidden = UNETS["unet1d" if axes == 1 else "unet2d"]
        conv, up = (nn.Conv1d, nn.ConvTranspose1d) if axes == 1 else (nn.Conv2d, nn.ConvTranspose2d)
        self.wrap = (1, 1) * axes if options.padding == "circular" else None
        self.line = axes == 1
        self.code, self.t1, self.t2 = Sinusoids(code), nn.Linear(code, hidden), nn.Linear(hidden, code)
        self.encode, self.down, self.up, self.decode = (nn.ModuleList() for _ in range(4))
        for o in channels:
            self.encode.append(Block(conv, c, o, code, options.padding))
            self.down.append(conv(o, o, 4, stride=2, padding=1, padding_mode=options.padding))
            c = o
        self.middle = Block(conv, c, c, code, options.padding)
        for o in reversed(channels):
            # Transposed convolutions have no circular padding: wrap one point, then crop three.
            self.up.append(up(c, o, 4, stride=2, padding=3 if self.wrap else 1))
            self.decode.append(Block(conv, 2 * o, o, code, options.padding))
            c = o
        self.head = conv(c, options.shape[-1], 1)

    def forward(self, t, u):
        x, skips = u.movedim(-1, 1), []  # for planes a channels-last view, which costs nothing
        x = x.contiguous() if self.line else x
        e = F.silu(self.t2(F.silu(self.t1(self.code(t)))))
        for block, down in zip(self.encode, self.down):
            x = block(x, e)
            skips.append(x)
            x = down(x)
        x = self.middle(x, e)
        for up, block in zip(self.up, self.decode):
            x = F.pad(x, self.wrap, mode="circular") if self.wrap else x
            x = block(torch.cat([up(x), skips.pop()], 1), e)
        return self.head(x).movedim(1, -1)


class Spectral(nn.Module):
    """A Fourier block. A truncated real Fourier transform as a matrix is faster than an FFT for six modes."""

    def __init__(self, points, width, modes):
        super().__init__()
        angle = 2 * np.pi * np.outer(np.arange(points), np.arange(modes)) / points
        twice = np.where(np.arange(modes) == 0, 1.0, 2.0)
        forward = np.concatenate([np.cos(angle), -np.sin(angle)], 1).T / points
        inverse = np.concatenate([np.cos(angle) * twice, -np.sin(angle) * twice], 1)
        for name, matrix in [("analyse", forward), ("synthesise", inverse)]:
            self.register_buffer(
                name, torch.tensor(np.ascontiguousarray(matrix), dtype=torch.float32), persistent=False
            )
        self.r = nn.Parameter((2 * torch.rand(modes, width, width) - 1) / width)
        self.i = nn.Parameter((2 * torch.rand(modes, width, width) - 1) / width)
        self.conv = nn.Linear(width, width)
        self.modes, self.width = modes, width

    def forward(self, x):
        complex_product = torch.cat([torch.cat([self.r, self.i], 2), torch.cat([-self.i, self.r], 2)], 1)
        s = torch.matmul(self.analyse, x)  # [2 modes, points] @ [batch, points, width]
        s = torch.cat([s[:, : self.modes], s[:, self.modes :]], -1)
        s = torch.einsum("bmc,mcd->bmd", s, complex_product)
        s = torch.cat([s[..., : self.width], s[..., self.width :]], 1)
        return F.gelu(torch.matmul(self.synthesise, s) + self.conv(x), approximate="tanh")


class FNO(nn.Module):
    def __init__(self, options, width=128, blocks=5, modes=6):
        super().__init__()
        points, c = options.shape
        self.register_buffer("grid", torch.arange(points)[:, None] / points, persistent=False)
        self.code, self.lift = Sinusoids(width), nn.Linear(c + 1, width)
        self.blocks = nn.ModuleList([Spectral(points, width, modes) for _ in range(blocks)])
        self.h1, self.h2 = nn.Linear(width, width), nn.Linear(width, c)

    def forward(self, t, u):
        # The size that the paper quotes leaves no weights for time: its fixed code is added to the lifted field.
        x = self.lift(torch.cat([u, self.grid.expand(len(u), -1, -1)], -1)) + self.code(t)[:, None]
        for block in self.blocks:
            x = block(x)
        return self.h2(F.gelu(self.h1(x), approximate="tanh"))


class DiTBlock(nn.Module):
    def __init__(self, width, heads, ratio):
        super().__init__()
        self.ada, self.qkv, self.out = nn.Linear(width, 6 * width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.m1, self.m2 = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)
        self.heads = heads

    def forward(self, x, e):
        n, tokens, width = x.shape
        s1, g1, o1, s2, g2, o2 = self.ada(e)[:, None].chunk(6, -1)
        y = F.layer_norm(x, (width,), eps=1e-6) * (1 + g1) + s1
        q, k, v = self.qkv(y).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width)
        x = x + o1 * self.out(y)
        y = F.layer_norm(x, (width,), eps=1e-6) * (1 + g2) + s2
        return x + o2 * self.m2(F.gelu(self.m1(y), approximate="tanh"))


class DiT(nn.Module):
    def __init__(self, options, patch=8, width=384, depth=4, heads=8, ratio=6, code=256):
        super().__init__()
        (self.rows, self.columns), self.c = (side // patch for side in options.shape[:2]), options.shape[2]
        self.patch = patch
        w = 1e-4 ** (np.arange(width // 4) / (width // 4))
        row, column = np.divmod(np.arange(self.rows * self.columns), self.columns)
        angles = [np.outer(column, w), np.outer(row, w)]
        position = np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)], 1)
        self.register_buffer("position", torch.tensor(position, dtype=torch.float32), persistent=False)
        self.embed = nn.Linear(patch * patch * self.c, width)
        self.blocks = nn.ModuleList([DiTBlock(width, heads, ratio) for _ in range(depth)])
        self.ada, self.head = nn.Linear(width, 2 * width), nn.Linear(width, patch * patch * self.c)
        self.code, self.t1, self.t2 = Sinusoids(code), nn.Linear(code, width), nn.Linear(width, width)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for module in [self.t1, self.t2]:
            nn.init.normal_(module.weight, std=0.02)
        for module in [self.ada, self.head, *(block.ada for block in self.blocks)]:
            nn.init.zeros_(module.weight)

    def forward(self, t, u):
        n, r, k, p, c = len(u), self.rows, self.columns, self.patch, self.c
        x = u.reshape(n, r, p, k, p, c).permute(0, 1, 3, 2, 4, 5).reshape(n, r * k, p * p * c)
        x = self.embed(x) + self.position
        e = F.silu(self.t2(F.silu(self.t1(self.code(t)))))
        for block in self.blocks:
            x = block(x, e)
        shift, scale = self.ada(e)[:, None].chunk(2, -1)
        x = self.head(F.layer_norm(x, (x.shape[-1],), eps=1e-6) * (1 + scale) + shift)
        return x.reshape(n, r, k, p, p, c).permute(0, 1, 3, 2, 4, 5).reshape(u.shape)


def build(options, device):
    model = {"mlp": MLP, "unet1d": UNet, "unet2d": UNet, "fno": FNO, "dit": DiT}[options.network](options).to(device)
    return model.to(memory_format=torch.channels_last) if options.network == "unet2d" else model


def count(model):
    """Trainable parameters, a complex weight counted once."""
    total = sum(p.numel() for p in model.parameters())
    return total - sum(block.i.numel() for block in model.modules() if isinstance(block, Spectral))
