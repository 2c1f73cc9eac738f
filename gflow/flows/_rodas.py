"""Rodas5P: a linearly implicit Runge-Kutta (Rosenbrock-Wanner) method of order 5, as a diffrax solver.

    (I/(gamma h) - J) u_i = f(t + c_i h, y + sum_j a_ij u_j) + sum_j C_ij u_j / h + h d_i df/dt,     i = 1..8

No Newton iteration, so nothing can fail to converge; stiffly accurate and L-stable; dense output of order 4.
Coefficients: G. Steinebach, "Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the
Julia Differential Equations package", BIT Numer. Math. 63 (2023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

GAMMA = 0.21193756319429014
_A = [
    [],
    [3.0],
    [2.849394379747939, 0.45842242204463923],
    [-6.954028509809101, 2.489845061869568, -10.358996098473584],
    [2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641],
    [-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946],
]
# the last stages add the previous ones with weight 1, and so does the solution
_A += [[*_A[5], 1.0], [*_A[5], 1.0, 1.0]]
_B = [*_A[5], 1.0, 1.0, 1.0]
_C = [
    [],
    [-14.155112264123755],
    [-17.97296035885952, -2.859693295451294],
    [147.12150275711716, -1.41221402718213, 71.68940251302358],
    [165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306],
    [24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471],
    [
        30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
        -28.087943162872662,
    ],
    [
        37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
        -54.66780262877968, -9.48861652309627,
    ],
]  # fmt: skip
_TIMES = [0.0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1.0, 1.0, 1.0]
_D = [GAMMA, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734, 2.325825639765069, 0.0, 0.0, 0.0]
_DENSE = [
    [
        25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204, 0.524948541321073,
        1.1241088310450404, 0.4272876194431874, -0.17202221070155493,
    ],
    [
        -9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796, 20.176138334709044,
        15.98066361424651, -6.789040303419874, -6.710236069923372,
    ],
    [
        11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643, -52.072871366152654,
        -59.78993625266729, -0.15582684282751913, 4.883087185713722,
    ],
]  # fmt: skip


def _square(rows: list[list[float]]) -> np.ndarray:
    return np.array([row + [0.0] * (8 - len(row)) for row in rows])


TABLEAU = _square(_A), _square(_C), np.array(_B)  # a, C, b


DENSE = np.array(_DENSE)  # [3, 8]: the coefficients of `RodasInterpolation` from the stages


class RodasInterpolation(diffrax.AbstractLocalInterpolation):
    """`y(theta) = (1-theta) y0 + theta (y1 + (1-theta) (k1 + theta (k2 + theta k3)))`."""

    t0: Any
    t1: Any
    y0: Float[Array, " m"]
    y1: Float[Array, " m"]
    k: Float[Array, "3 m"]

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Float[Array, " m"]:
        if t1 is not None:
            return self.evaluate(t1) - self.evaluate(t0)
        h = self.t1 - self.t0
        theta = (t0 - self.t0) / jnp.where(h == 0, jnp.ones_like(h), h)
        inner = self.k[0] + theta * (self.k[1] + theta * self.k[2])
        return (1 - theta) * self.y0 + theta * (self.y1 + (1 - theta) * inner)


class Rodas5P(diffrax.AbstractAdaptiveSolver):
    """Rodas5P for one flat vector; the Jacobian is exact (forward mode), the linear system dense."""

    term_structure: ClassVar = diffrax.ODETerm
    interpolation_cls: ClassVar[Callable[..., RodasInterpolation]] = RodasInterpolation

    def order(self, terms: Any) -> int:
        return 5

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> None:
        return None

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return terms.vf(t0, y0, args)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: None, made_jump: Any
    ) -> tuple[Any, Any, dict[str, Any], None, diffrax.RESULTS]:
        del solver_state, made_jump
        dtype, h = y0.dtype, t1 - t0
        constant: Callable[[Any], Array] = lambda x: jnp.asarray(x, dtype)  # noqa: E731
        field = lambda t, y: terms.vf(t, y, args)  # noqa: E731
        jacobian = jax.jacfwd(lambda y: field(t0, y))(y0)
        drift = jax.jvp(lambda t: field(t, y0), (t0,), (jnp.ones_like(t0),))[1]
        # one small inverse serves all eight stages
        inverse = jnp.linalg.inv(jnp.eye(y0.size, dtype=dtype) / (GAMMA * h) - jacobian)
        a, c, times, d = constant(_square(_A)), constant(_square(_C)), constant(_TIMES), constant(_D)

        def stage(i: Array, u: Array) -> Array:
            right = field(t0 + times[i] * h, y0 + a[i] @ u) + c[i] @ u / h + h * d[i] * drift
            return u.at[i].set(inverse @ right)

        # a loop, not eight copies: the vector field is compiled once
        u = jax.lax.fori_loop(0, 8, stage, jnp.zeros((8, y0.size), dtype))
        y1 = y0 + constant(_B) @ u
        dense = {"y0": y0, "y1": y1, "k": constant(_DENSE) @ u}
        return y1, u[7], dense, None, diffrax.RESULTS.successful
