"""What chapter 13 says in numbers, held to what its cells computed."""

import torch
from claiming import after, claim


@after("mean")
def half_of_each(tokens, mean):
    claim("50 % of each", torch.equal(mean, 0.5 * tokens.sum(1)))
