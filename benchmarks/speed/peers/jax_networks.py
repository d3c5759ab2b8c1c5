"""The paper's networks in JAX: `build(options)` returns `init(key)` and `apply(parameters, t, u)`."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from settings import TIME_SCALE, UNETS


class Keys:
    """A stream of random keys."""

    def __init__(self, key):
        self.key = key

    def __call__(self):
        self.key, key = jax.random.split(self.key)
        return key


def uniform(keys, shape, inputs):
    return jax.random.uniform(keys(), shape, minval=-1.0, maxval=1.0) / math.sqrt(inputs)


def dense_init(keys, i, o):
    return {"w": uniform(keys, (i, o), i), "b": uniform(keys, (o,), i)}


def dense(p, x):
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def sinusoids(t, width):
    w = jnp.exp(-math.log(1e4) * jnp.arange(width // 2) / (width // 2))
    angle = TIME_SCALE * t[:, None] * w
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], -1)


def mlp(options, dtype, timed=True):
    size = math.prod(options.shape)
    widths = [size + (32 if timed else 0), 128, 256, 256, 256, 128, size]

    def init(keys):
        return [dense_init(keys, i, o) for i, o in zip(widths, widths[1:])]

    def apply(p, t, u):
        x = u.reshape(len(u), -1)
        x = (jnp.concatenate([x, sinusoids(t, 32)], -1) if timed else x).astype(dtype)
        for layer in p[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return dense(p[-1], x).reshape(u.shape)

    return init, apply


def group_norm(p, x, groups=8):
    s = x.astype(jnp.float32).reshape(len(x), -1, groups, x.shape[-1] // groups)
    mean = s.mean((1, 3), keepdims=True)
    variance = jnp.maximum((s * s).mean((1, 3), keepdims=True) - mean * mean, 0)
    s = ((s - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return (s * p["g"] + p["b"]).astype(x.dtype)


def convolutions(axes, circular):
    """A convolution with padding 1 and a transposed one with kernel 4 and stride 2."""
    layout = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC")}[axes]

    def convolve(x, w, stride, padding):
        return lax.conv_general_dilated(x, w, (stride,) * axes, [(padding,) * 2] * axes, dimension_numbers=layout)

    def wrap(x):
        return jnp.pad(x, [(0, 0)] + [(1, 1)] * axes + [(0, 0)], mode="wrap") if circular else x

    def conv(p, x, stride=1):
        return convolve(wrap(x), p["w"].astype(x.dtype), stride, 0 if circular else 1) + p["b"].astype(x.dtype)

    # The transposed convolution is the adjoint of a strided one. JAX would differentiate it with respect to the
    # kernel as a convolution with a dilated input, which is many times slower than the form used here.
    def halve(w):
        return lambda y: convolve(y, w, 2, 3 if circular else 1)

    @jax.custom_vjp
    def widen(x, w):
        sides = [2 * (n - 2) if circular else 2 * n for n in x.shape[1:-1]]
        return jax.linear_transpose(halve(w), jax.ShapeDtypeStruct((len(x), *sides, w.shape[-2]), x.dtype))(x)[0]

    def widen_back(saved, g):
        x, w = saved
        small, pull = jax.vjp(lambda w: halve(w)(g), w)
        return small, pull(x)[0]

    widen.defvjp(lambda x, w: (widen(x, w), (x, w)), widen_back)

    def up(p, x):
        return widen(wrap(x), p["w"].astype(x.dtype)) + p["b"].astype(x.dtype)

    return conv, up


def unet(options, dtype, timed=True):
    axes, outputs = len(options.shape) - 1, options.shape[-1]
    channels, code, hidden = UNETS["unet1d" if axes == 1 else "unet2d"]
    conv, up = convolutions(axes, options.padding == "circular")

    def conv_init(keys, size, i, o):
        return {"w": uniform(keys, (size,) * axes + (i, o), i * size**axes), "b": uniform(keys, (o,), i * size**axes)}

    def up_init(keys, i, o):
        return {"w": uniform(keys, (4,) * axes + (o, i), o * 4**axes), "b": uniform(keys, (o,), o * 4**axes)}

    def norm_init(width):
        return {"g": jnp.ones(width), "b": jnp.zeros(width)}

    def block_init(keys, i, o):
        p = {"c1": conv_init(keys, 3, i, o), "n1": norm_init(o), "c2": conv_init(keys, 3, o, o), "n2": norm_init(o)}
        return {**p, "t": dense_init(keys, code, o)} if timed else p

    def block(p, x, e):
        x = jax.nn.silu(group_norm(p["n1"], conv(p["c1"], x)))
        if timed:
            x = x + dense(p["t"], e).reshape(len(x), *[1] * axes, -1)
        return jax.nn.silu(group_norm(p["n2"], conv(p["c2"], x)))

    def init(keys):
        width, p = outputs, {"down": [], "up": []}
        if timed:
            p["t1"], p["t2"] = dense_init(keys, code, hidden), dense_init(keys, hidden, code)
        for o in channels:
            p["down"].append({"block": block_init(keys, width, o), "conv": conv_init(keys, 4, o, o)})
            width = o
        p["mid"] = block_init(keys, width, width)
        for o in reversed(channels):
            p["up"].append({"conv": up_init(keys, width, o), "block": block_init(keys, 2 * o, o)})
            width = o
        return {**p, "head": dense_init(keys, width, outputs)}

    def apply(p, t, u):
        x, e, skips = u.astype(dtype), None, []
        if timed:
            e = sinusoids(t, code).astype(dtype)
            e = jax.nn.silu(dense(p["t2"], jax.nn.silu(dense(p["t1"], e))))
        for level in p["down"]:
            x = block(level["block"], x, e)
            skips.append(x)
            x = conv(level["conv"], x, stride=2)
        x = block(p["mid"], x, e)
        for level in p["up"]:
            x = block(level["block"], jnp.concatenate([up(level["conv"], x), skips.pop()], -1), e)
        return dense(p["head"], x)

    return init, apply


def fno(options, dtype, width=128, blocks=5, modes=6):
    points, outputs = options.shape
    angle = 2 * np.pi * np.outer(np.arange(points), np.arange(modes)) / points
    twice = np.where(np.arange(modes) == 0, 1.0, 2.0)
    # A truncated real Fourier transform as a matrix, which is faster than an FFT for six modes.
    forward = jnp.asarray(np.concatenate([np.cos(angle), -np.sin(angle)], 1) / points, dtype)
    inverse = jnp.asarray(np.concatenate([np.cos(angle) * twice, -np.sin(angle) * twice], 1).T, dtype)

    def init(keys):
        def block():
            real, imaginary = (uniform(keys, (modes, width, width), width**2) for _ in range(2))
            return {"r": real, "i": imaginary, "conv": dense_init(keys, width, width)}

        p = {"lift": dense_init(keys, outputs + 1, width), "blocks": [block() for _ in range(blocks)]}
        return {**p, "h1": dense_init(keys, width, width), "h2": dense_init(keys, width, outputs)}

    def apply(p, t, u):
        grid = jnp.broadcast_to((jnp.arange(points) / points)[:, None], (*u.shape[:2], 1))
        x = dense(p["lift"], jnp.concatenate([u, grid], -1).astype(dtype))
        # The size that the paper quotes leaves no weights for time: its fixed code is added to the lifted field.
        x = x + sinusoids(t, width)[:, None].astype(dtype)
        for b in p["blocks"]:
            r, i = b["r"].astype(dtype), b["i"].astype(dtype)
            complex_product = jnp.concatenate([jnp.concatenate([r, i], 2), jnp.concatenate([-i, r], 2)], 1)
            s = jnp.einsum("bnc,nm->bmc", x, forward)
            s = jnp.einsum("bmc,mcd->bmd", jnp.concatenate([s[:, :modes], s[:, modes:]], -1), complex_product)
            s = jnp.concatenate([s[..., :width], s[..., width:]], 1)
            x = jax.nn.gelu(jnp.einsum("bmc,mn->bnc", s, inverse) + dense(b["conv"], x))
        return dense(p["h2"], jax.nn.gelu(dense(p["h1"], x)))

    return init, apply


def positions(rows, columns, width):
    """The DiT's fixed sinusoids of the position of each patch."""
    w = 1e-4 ** (np.arange(width // 4) / (width // 4))
    row, column = np.divmod(np.arange(rows * columns), columns)
    angles = [np.outer(column, w), np.outer(row, w)]
    return np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)], 1)


def dit(options, dtype, patch=8, width=384, depth=4, heads=8, ratio=6, code=256):
    (rows, columns), c = (side // patch for side in options.shape[:2]), options.shape[2]
    position = jnp.asarray(positions(rows, columns, width), dtype)

    def xavier(keys, i, o):
        w = jax.random.uniform(keys(), (i, o), minval=-1.0, maxval=1.0) * math.sqrt(6 / (i + o))
        return {"w": w, "b": jnp.zeros(o)}

    def small(keys, i, o):
        return {"w": 0.02 * jax.random.normal(keys(), (i, o)), "b": jnp.zeros(o)}

    def zero(i, o):
        return {"w": jnp.zeros((i, o)), "b": jnp.zeros(o)}

    def norm(x, shift, scale):
        s = x.astype(jnp.float32)
        s = (s - s.mean(-1, keepdims=True)) * lax.rsqrt(s.var(-1, keepdims=True) + 1e-6)
        return s.astype(x.dtype) * (1 + scale[:, None]) + shift[:, None]

    def init(keys):
        def block():
            p = {
                "ada": zero(width, 6 * width),
                "qkv": xavier(keys, width, 3 * width),
                "out": xavier(keys, width, width),
            }
            return {**p, "m1": xavier(keys, width, ratio * width), "m2": xavier(keys, ratio * width, width)}

        p = {"t1": small(keys, code, width), "t2": small(keys, width, width)}
        p = {**p, "embed": xavier(keys, patch * patch * c, width), "blocks": [block() for _ in range(depth)]}
        return {**p, "ada": zero(width, 2 * width), "head": zero(width, patch * patch * c)}

    def apply(p, t, u):
        n = len(u)
        x = u.astype(dtype).reshape(n, rows, patch, columns, patch, c).transpose(0, 1, 3, 2, 4, 5)
        x = dense(p["embed"], x.reshape(n, rows * columns, -1)) + position
        e = jax.nn.silu(dense(p["t2"], jax.nn.silu(dense(p["t1"], sinusoids(t, code).astype(dtype)))))
        for b in p["blocks"]:
            s1, g1, o1, s2, g2, o2 = jnp.split(dense(b["ada"], e), 6, -1)
            qkv = dense(b["qkv"], norm(x, s1, g1)).reshape(n, rows * columns, 3, heads, width // heads)
            y = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
            x = x + o1[:, None] * dense(b["out"], y.reshape(n, rows * columns, width))
            x = x + o2[:, None] * dense(b["m2"], jax.nn.gelu(dense(b["m1"], norm(x, s2, g2))))
        x = dense(p["head"], norm(x, *jnp.split(dense(p["ada"], e), 2, -1)))
        return x.reshape(n, rows, columns, patch, patch, c).transpose(0, 1, 3, 2, 4, 5).reshape(u.shape)

    return init, apply


def build(options):
    """Weights and output are float32 whatever the working precision."""
    make = {"mlp": mlp, "unet1d": unet, "unet2d": unet, "fno": fno, "dit": dit}[options.network]
    init, apply = make(options, jnp.bfloat16 if options.precision == "bf16" else jnp.float32)
    return (lambda key: init(Keys(key))), (lambda p, t, u: apply(p, t, u).astype(jnp.float32))


def count(parameters, network):
    """Trainable parameters, a complex weight counted once."""
    total = sum(x.size for x in jax.tree.leaves(parameters))
    return total - sum(b["i"].size for b in parameters["blocks"]) if network == "fno" else total
