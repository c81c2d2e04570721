"""One rank of a short data-parallel training whose every bit depends only on the data moved."""

import hashlib
import math
import sys

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

import rank_common as common

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 256, 64, 256, 4, 3, 8


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """x: (batch, length, width), the same out."""
        batch = x.shape[0]
        heads = self.mix(self.norm1(x)).view(batch, LENGTH, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, LENGTH, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A language model of three blocks, about 2.5 million parameters."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Parameter(torch.randn(LENGTH, WIDTH) / math.sqrt(WIDTH))
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        """tokens: (batch, length) -> logits (batch, length, vocabulary)."""
        return self.head(self.blocks(self.embed(tokens) + self.place))


def batch(step, chosen):
    """This rank's tokens of a step: noisy arithmetic sequences, from a seed of their own."""
    source = torch.Generator().manual_seed(1000 * step + common.RANK)
    start = torch.randint(0, VOCABULARY, (BATCH, 1), generator=source)
    stride = torch.randint(1, 5, (BATCH, 1), generator=source)
    tokens = (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY
    return tokens[:, :-1].to(chosen), tokens[:, 1:].to(chosen)


def train(steps, chosen):
    """Returns the losses as hexadecimal floats and a hash of the final parameters."""
    torch.manual_seed(7)
    model = DistributedDataParallel(
        Model().to(chosen), device_ids=[chosen.index], bucket_cap_mb=1
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        tokens, following = batch(step, chosen)
        optimizer.zero_grad(set_to_none=True)
        with sdpa_kernel(SDPBackend.MATH):
            logits = model(tokens)
            loss = functional.cross_entropy(logits.flatten(0, 1), following.flatten())
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return losses, digest.hexdigest()


def work():
    """steps (argument 1)."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    chosen = common.device()
    common.join(common.store(), "training", chosen)
    losses, parameters = train(int(sys.argv[1]), chosen)
    common.leave()
    problems = [] if losses[-1] < losses[0] else [f"the loss rose: {losses[0]} to {losses[-1]}"]
    return {
        "problems": problems,
        "losses": [loss.hex() for loss in losses],
        "first": losses[0],
        "last": losses[-1],
        "parameters": parameters,
    }


if __name__ == "__main__":
    common.main(work)
