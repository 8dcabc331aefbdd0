EPS: float = 1e-6
