#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# costs - tests scripts/costs with traces of PyTorch and logs of Megatron-LM.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    PATH=$SRCDIR/scripts:$PATH
}

# A forward on one thread and its backward on another, both of which start
# kernels: an embedding, two layers, a product behind them.
@test "kernels count for the module of the operator that started them" {
    python3 - >trace.json <<'END'
import json
events, ids = [], iter(range(1, 99))
def module(name, ts, dur):
    events.append(dict(ph="X", cat="python_function", tid=1, ts=ts, dur=dur,
                       name="nn.Module: " + name))
def op(tid, name, ts, dur, number=None, kernels=()):
    args = {"External id": next(ids)}
    if number is not None:
        args["Sequence number"] = number
    events.append(dict(ph="X", cat="cpu_op", tid=tid, ts=ts, dur=dur,
                       name=name, args=args))
    for k in kernels:
        events.append(dict(ph="X", cat="kernel", tid=7, ts=ts + 500, dur=k,
                           name="k", args={"External id": args["External id"]}))
def backward(node, ts, number, inner):
    name = "autograd::engine::evaluate_function: " + node
    op(2, name, ts, 10, number)
    for i, (n, k) in enumerate(inner):
        op(2, n, ts + 1 + i, 1, None, [k])
for step in range(2):
    t, n = 1000 * step, 10 * step
    module("Model_0", t, 100)
    module("Embedding_0", t, 10)
    op(1, "aten::embedding", t + 1, 5, n, [2])
    for i in range(2):
        module(f"Layer_{i}", t + 20 + 20 * i, 20)
        module(f"Linear_{i}", t + 21 + 20 * i, 5)
        op(1, "aten::linear", t + 22 + 20 * i, 4, n + 1 + i)
        op(1, "aten::mm", t + 23 + 20 * i, 2, n + 1 + i, [30 + i])
    module("RMSNorm_0", t + 65, 5)
    op(1, "aten::mul", t + 66, 2, n + 3, [3])
    module("Linear_2", t + 70, 20)
    op(1, "aten::linear", t + 71, 10, n + 4, [50])
    backward("LinearBackward0", t + 200, n + 4, [("aten::mm", 40),
                                                 ("aten::mm", 60)])
    backward("MulBackward0", t + 220, n + 3, [("aten::mul", 4)])
    for i in (1, 0):
        inner = [("aten::mm", 35)] + [("aten::mm", 25)] * i
        backward("MmBackward0", t + 270 - 30 * i, n + 1 + i, inner)
        backward("torch::autograd::AccumulateGrad", t + 281 - 30 * i, None,
                 [("aten::add_", 1)])
print(json.dumps({"traceEvents": events}))
END
    run -0 --separate-stderr costs trace.json
    [ -z "$stderr" ]
    awk '!/^#/ { print $1, $2 * 1e6, $3 * 1e6, $4 * 1e6 }' <<<"$output" >got
    diff - got <<'END'
model.embed_tokens 2 0 0
model.layers.0 30 0 36
model.layers.1 31 30 31
model.norm 3 4 0
lm_head 50 50 50
END
    gzip trace.json
    costs trace.json.gz | diff <(printf '%s\n' "$output") -
}

@test "ppsplit takes the times of a trace that PyTorch wrote" {
    "${PP_PYTHON:-python3}" - <<'END' || skip "Python has no torch"
import sys
try:
    import torch
except ImportError:
    sys.exit(1)
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 512), torch.nn.Linear(512, 64)
    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(x)))
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(500, 64)
        self.layers = torch.nn.ModuleList([Layer() for _ in range(3)])
        self.norm, self.head = torch.nn.RMSNorm(64), torch.nn.Linear(64, 500)
    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
torch.set_num_threads(1)
model, x = Model(), torch.randint(500, (256,))
model(x).sum().backward()
activities = [torch.profiler.ProfilerActivity.CPU]
with torch.profiler.profile(activities=activities, with_stack=True) as p:
    for _ in range(3):
        model(x).sum().backward()
p.export_chrome_trace("trace.json")
END
    costs trace.json >table
    awk '!/^#/ { print $1 }' table | diff - <(printf '%s\n' \
        model.embed_tokens model.layers.{0,1,2} model.norm lm_head)
    # Both products of a layer have weight gradients, and none is free.
    awk '/layers|lm_head/ && !($2 > 0 && $3 > 0 && $4 > 0) { exit 1 }' table
    llama 3 500 >model.json
    ppsplit -p 3 --costs table -t model.json | grep -q ' takes .* s;'
    run -2 --separate-stderr costs --layer Nothing trace.json
    [[ $stderr == "costs: no module is a layer"* ]]
}

@test "timers of Megatron-LM become times of a layer" {
    {
        for step in 1 2 3; do
            cat <<END
 iteration $step/ 3 | elapsed time per iteration (ms): 900.0 |
(min, max) time across ranks (ms):
    forward-backward ...............................: (850.10, 860.20)
    forward-compute ................................: ($((step == 1 ? 999 : 230)).00, $((step == 1 ? 999 : 240)).00)
    backward-compute ...............................: (470.00, 480.00)
END
        done
    } >log
    costs --megatron --layers 10 --microbatches 8 log | awk '!/^#/' >table
    diff - table <<'END'
model.layers.*          0.003        0.003        0.003
END
    run -2 --separate-stderr costs --megatron --layers 1 --microbatches 1 \
        <(head -n 4 log)
    [[ $stderr == *"has no two steps with the timers"* ]]
}

@test "a file that is no trace is refused" {
    echo '{"a": 1}' >other
    run -2 --separate-stderr costs other
    [ "$stderr" = "costs: other: is not a trace of PyTorch's profiler" ]
    run -2 --separate-stderr costs absent
    [ "$stderr" = "costs: absent: No such file or directory" ]
}
