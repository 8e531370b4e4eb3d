"""Which claims hang on rounding? Kernels start with this where VIT_TUTORIAL_ROUNDING is a number: `make rounding`.

Processors round differently, and a training makes another model out of a last bit. What a page says has to hold for
that one, too, or the book can't be built on a reader's machine. So each matrix that an optimizer gets is moved by a
factor of 1 ± 0.000001 or so, in another way for each number; equal starts stay equal.
"""


def start_a_millionth_off():  # a function, so that the chapter's own names touch nothing here
    import os

    import torch

    start, number = torch.optim.Optimizer.__init__, int(os.environ["VIT_TUTORIAL_ROUNDING"])

    def moved(self, params, defaults):
        start(self, params, defaults)
        for parameter in [p for group in self.param_groups for p in group["params"] if p.ndim == 2]:
            generator = torch.Generator().manual_seed(1000 * number + len(parameter))
            by = 1 + 1e-6 * torch.randn(parameter.shape, generator=generator)
            parameter.data.mul_(by.to(parameter))

    torch.optim.Optimizer.__init__ = moved


if __name__ == "__main__":
    start_a_millionth_off()
