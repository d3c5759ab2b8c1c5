"""Weights of a quintic spline through snapshots at irregular times, for any array module (`jax.numpy`, `torch`)."""


def hermite(tau):
    """Quintic basis H00, H10, H20, H01, H11, H21 at tau, and its derivatives."""
    t2, t3, t4 = tau**2, tau**3, tau**4
    t5 = t4 * tau
    value = (
        1 - 10 * t3 + 15 * t4 - 6 * t5,
        tau - 6 * t3 + 8 * t4 - 3 * t5,
        (t2 - 3 * t3 + 3 * t4 - t5) / 2,
        10 * t3 - 15 * t4 + 6 * t5,
        -4 * t3 + 7 * t4 - 3 * t5,
        (t3 - 2 * t4 + t5) / 2,
    )
    slope = (
        -30 * t2 + 60 * t3 - 30 * t4,
        1 - 18 * t2 + 32 * t3 - 15 * t4,
        (2 * tau - 9 * t2 + 12 * t3 - 5 * t4) / 2,
        30 * t2 - 60 * t3 + 30 * t4,
        -12 * t2 + 28 * t3 - 15 * t4,
        (3 * t2 - 8 * t3 + 5 * t4) / 2,
    )
    return value, slope


def stencil(xp, x, z, shift):
    """Three-point weights of the first and second derivative at z on x[0..2], or on x[1..3] where `shift` holds."""
    a, b, c = [xp.where(shift, x[j + 1], x[j]) for j in range(3)]
    i0, i1, i2 = 1 / ((a - b) * (a - c)), 1 / ((b - a) * (b - c)), 1 / ((c - a) * (c - b))

    def place(w):
        return [xp.where(shift, low, high) for low, high in zip([0 * z, *w], [*w, 0 * z])]

    return place([(2 * z - b - c) * i0, (2 * z - a - c) * i1, (2 * z - a - b) * i2]), place([2 * i0, 2 * i1, 2 * i2])


def weights(xp, x, p, t):
    """Value and velocity weights of four knots x[0..3] for t between knots p and p + 1, where p is 0, 1 or 2.

    Also returns the position in the interval and its length."""
    left = xp.where(p == 0, x[0], xp.where(p == 1, x[1], x[2]))
    length = xp.where(p == 0, x[1], xp.where(p == 1, x[2], x[3])) - left
    scaled, tau = [(knot - left) / length for knot in x], (t - left) / length
    # One-sided at the right end of the last interval and at the left end of the first one.
    first, second = stencil(xp, scaled, xp.zeros_like(tau), p == 2)
    first_right, second_right = stencil(xp, scaled, xp.ones_like(tau), p >= 1)

    def mix(h):
        return [
            h[0] * (p == k)
            + h[3] * (p + 1 == k)
            + h[1] * first[k]
            + h[2] * second[k]
            + h[4] * first_right[k]
            + h[5] * second_right[k]
            for k in range(4)
        ]

    value, slope = hermite(tau)
    return mix(value), [w / length for w in mix(slope)], tau, length


def training_noise(tau, length, amplitude, power=3):
    """Factors of the noise in the state and in the velocity."""
    bump = tau * (1 - tau)
    return amplitude * bump**power, amplitude * power * bump ** (power - 1) * (1 - 2 * tau) / length
