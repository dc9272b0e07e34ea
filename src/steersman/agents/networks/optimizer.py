"""Adam of torch without the import of torch's compiler, which takes longer than torch's own import.

torch wraps optimisers so that its compiler skips them, and imports the compiler for this at the first step: 4.2
seconds, beside 2.8 for torch itself (2.15). Nothing here is compiled by it, so the wrapped function is called directly.
The weights are equal to the last bit, and 20 iterations of DQN or actor-critic take 5.7 s from start to end instead of
10.3. With `fused=True` torch imports it as well, and the weights differ.
"""

from __future__ import annotations

import inspect

import torch


class Adam(torch.optim.Adam):
    """`torch.optim.Adam` without wrappers."""

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    # The removed wrapper of `step` switches gradients off; the others need none.
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
