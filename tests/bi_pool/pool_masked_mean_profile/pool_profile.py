class PoolProfile:
    """Latency profile while few sequences are in flight, throughput profile after."""

    def __init__(self, in_flight):
        self.in_flight = in_flight

    @property
    def rows_per_step(self):
        if self.in_flight > 96:
            return 8
        return 32 if self.in_flight > 24 else 128

    def as_kwargs(self):
        return {"STEP": self.rows_per_step, "num_warps": 4 if self.rows_per_step < 128 else 8}
