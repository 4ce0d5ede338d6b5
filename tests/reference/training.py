"""Loss and optimizer as PyTorch computes them: training.py OUT.safetensors."""
import sys

import torch
from safetensors.torch import save_file

torch.manual_seed(7)
out = {}

# Smoothed cross entropy, with padding (id 0), and its gradients; more rows than one chunk holds.
rows, width, vocabulary, smoothing = 1300, 8, 37, 0.1
hidden = torch.randn(rows, width, dtype=torch.float64, requires_grad=True)
weight = torch.randn(vocabulary, width, dtype=torch.float64, requires_grad=True)
targets = torch.randint(0, vocabulary, (rows,))
logits = torch.nn.functional.linear(hidden, weight)
loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=0, reduction="sum", label_smoothing=smoothing)
nll = torch.nn.functional.cross_entropy(logits, targets, ignore_index=0, reduction="sum")
(3 * loss).backward()
out.update(hidden=hidden.detach(), weight=weight.detach(), targets=targets, logits=logits.detach(), loss=loss.detach(),
           nll=nll.detach(), hidden_gradient=hidden.grad, weight_gradient=weight.grad)

# Five steps of Adam at changing rates, gradients clipped at a joint norm of 1.
parameters = [torch.randn(3, 4, requires_grad=True), torch.randn(5, requires_grad=True)]
out.update(adam_before_0=parameters[0].detach().clone(), adam_before_1=parameters[1].detach().clone())
optimizer = torch.optim.Adam(parameters, lr=1.0, betas=(0.9, 0.98), eps=1e-9)
for step in range(5):
    for i, parameter in enumerate(parameters):
        parameter.grad = torch.randn_like(parameter)
        out[f"adam_gradient_{step}_{i}"] = parameter.grad.clone()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.param_groups[0]["lr"] = 0.01 * (step + 1)
    optimizer.step()
out.update(adam_after_0=parameters[0].detach(), adam_after_1=parameters[1].detach())

save_file({name: tensor.contiguous() for name, tensor in out.items()}, sys.argv[1])
