"""Quantiles of Student's t distribution."""

import math
import statistics

POWER_Z = statistics.NormalDist().inv_cdf(0.9)


def student_quantile(z: float, freedom: int) -> float:
    """Return Student's t where the normal distribution has z (Abramowitz and Stegun, 26.7.5: four terms).

    Close from about ten degrees of freedom on; for fewer take `student_t`.
    """
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * freedom**4)
    )


def student_t(alpha: float, freedom: int) -> float:
    """Return the t that so many degrees of freedom exceed with chance alpha, below one half.

    The distribution in closed form (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4), in
    time that grows with the degrees of freedom; for many of them take `student_quantile`.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _upper_tail(middle, freedom) > alpha else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def detectable_errors(t: float, freedom: int) -> float:
    """Return the standard errors that a difference must have so that Student's t exceeds `t` 9 times in 10.

    By the normal approximation of the noncentral t (Abramowitz and Stegun, 26.7.10).
    """
    return t * (1 - 1 / (4 * freedom)) + POWER_Z * math.sqrt(1 + t**2 / (2 * freedom))


def _upper_tail(angle: float, freedom: int) -> float:
    """Return the chance of a t above the root of `freedom` times the angle's tangent."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= (step - 1) / step * cosine**2
        total += term
    if not odd:
        return (1 - sine * total) / 2
    return 0.5 - (angle + (sine * total if freedom > 1 else 0.0)) / math.pi
