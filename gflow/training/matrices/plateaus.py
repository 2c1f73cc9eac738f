"""Interior plateaus of a loss curve: levels at which it waits, by the time it takes to go down by a fixed factor."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int, Num

from gflow.errors import InputError


@dataclasses.dataclass(frozen=True)
class Plateau:
    """A level at which a loss waits: from step `start` to `end` it only falls by the band's factor, about `level`.

    `level` is relative to the loss at the start. `contrast`: how many times longer the wait is than the faster of the
    two passages, before and after, is slow; at least the rule's.
    """

    start: float
    end: float
    level: float
    contrast: float

    @property
    def length(self) -> float:
        """Steps."""
        return self.end - self.start


def slowness(
    steps: Num[np.ndarray, " N"],
    loss: Float[np.ndarray, " N"],
    band: Float[np.ndarray, " V"],
    at: Float[np.ndarray, " V"],
) -> tuple[Float[np.ndarray, " V"], Float[np.ndarray, " V"], Float[np.ndarray, " V"]]:
    """`W(v) = (tau(v + h) - tau(v)) / h`: steps per unit of `u = log(loss(0) / loss)` from u = v on, h = `band`.

    `tau(v)` is the step at which u first reaches v, linear between records; NaN where it never does. Returns
    (W, tau(v), tau(v + h)).
    """
    depth = np.maximum.accumulate(np.log(loss[0] / loss))

    def tau(v: Float[np.ndarray, " V"]) -> Float[np.ndarray, " V"]:
        first = np.searchsorted(depth, v, side="left")
        k = np.clip(first, 1, len(depth) - 1)
        rise = depth[k] - depth[k - 1]
        share = np.where(rise > 0, (v - depth[k - 1]) / np.where(rise > 0, rise, 1.0), 0.0)
        found = steps[k - 1] + np.clip(share, 0.0, 1.0) * (steps[k] - steps[k - 1])
        return np.where(first < len(depth), found, np.nan)

    start, end = tau(at), tau(at + band)
    return (end - start) / band, start, end


def find_plateaus(
    steps: Int[np.ndarray, " N"] | Float[np.ndarray, " N"],
    loss: Float[np.ndarray, " N"],
    *,
    noise: Float[np.ndarray, " N"] | None = None,
    band: float = 0.1,
    contrast: float = 2.0,
    descent: float = 0.1,
    length: float = 30.0,
    floor: float = 0.02,
) -> list[Plateau]:
    """Peaks of the slowness `W(v) = (tau(v + h) - tau(v)) / h`, `tau(v) = min {t : log(loss(0)/loss(t)) >= v}`.

    An interior plateau is a local maximum v* of W with
    - prominence `log W(v*) - max(min_left log W, min_right log W) >= log contrast`, each minimum taken up to the next
      higher peak or the end of the curve: the loss waits at least `contrast` times longer there than it did before,
      and than it does after;
    - `v* >= descent` and `v_end - (v* + h) >= descent`: a real descent precedes it, and follows;
    - a wait `tau(v* + h) - tau(v*) >= length` steps.
    v_end is the depth reached, at most `log(1/floor)`: below floor times its start a loss is left to the noise of
    training. So a slow start and a final level are no plateaus, an exponential (W constant) and a power law
    (W increasing) have none. Scale of the steps and of the loss do not matter, except through `length`.

    - `steps` [N] increasing, `loss` [N]; records from the first NaN on are ignored.
    - `noise` [N]: standard error of each record, if their errors are independent (a fresh evaluation sample each).
      The band is `h = max(band, 10 noise/loss)` at every depth: first passages move by about the noise, so that a wait
      is then known to a tenth. On a fixed sample the error is common to all records and makes no waits: no `noise`.
    Raises `InputError` when the loss is not positive or steps do not increase. *derived* (the definition is ours).
    """
    from scipy.signal import find_peaks

    steps, loss = np.asarray(steps, float), np.asarray(loss, float)
    good = np.cumprod(np.isfinite(loss)).astype(bool)
    steps, loss = steps[good], loss[good]
    if np.any(loss <= 0):
        raise InputError(f"loss = {float(loss.min()):g} is not positive; the finder needs positive losses")
    if np.any(np.diff(steps) <= 0):
        raise InputError("steps do not increase; give each record once, in order")
    if len(loss) < 3:
        return []
    reached = np.maximum.accumulate(np.log(loss[0] / loss))
    end = min(float(reached[-1]), float(np.log(1 / floor)))
    at = np.arange(0.0, end, band / 10)
    width = np.full_like(at, band)
    if noise is not None:
        relative = np.asarray(noise, float)[good] / loss
        width = np.maximum(width, 10.0 * np.maximum.accumulate(relative)[np.searchsorted(reached, at)])
    keep = at + width <= end
    if np.count_nonzero(keep) < 3:
        return []
    slow, start, stop = slowness(steps, loss, width[keep], at[keep])
    # two depths within one interval of records take no time that the records resolve
    least = float(np.min(np.diff(steps))) / 2
    # rounded: peaks that differ in the last digits only would each have the prominence of the whole
    height = np.round(np.log(np.maximum(slow * width[keep], least) / width[keep]), 9)
    peaks, about = find_peaks(height, prominence=np.log(contrast))
    found = []
    for peak, prominence in zip(peaks, about["prominences"], strict=True):
        v, w = at[peak], width[peak]
        if v >= descent and end - (v + w) >= descent and stop[peak] - start[peak] >= length:
            level = float(np.exp(-(v + w / 2)))
            found.append(Plateau(float(start[peak]), float(stop[peak]), level, float(np.exp(prominence))))
    return found
