# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 An author whose notice must stay
"""Two operators that are not PyTorch's own, for the tests of extraction."""

import torch


@torch.library.custom_op("passwright_test::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@scale.register_fake
def _scale_shape(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


LIBRARY = torch.library.Library("passwright_test_lib", "DEF")
LIBRARY.define("shift(Tensor x, float by) -> Tensor")
LIBRARY.impl("shift", lambda x, by: x + by, "CompositeExplicitAutograd")
torch.library.register_fake("passwright_test_lib::shift", lambda x, by: torch.empty_like(x))
