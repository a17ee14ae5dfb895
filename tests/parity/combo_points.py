# SPDX-License-Identifier: MIT
"""combo_points - draws the points of combos: a model, its data, one or two
plans, and what pprun does with them. A point is a dictionary with a value for
every name of PLAIN, which has the plainest values; its plans are dictionaries
like PLAIN_PLAN. What is rare in use is as frequent as what is not, but a draw
knows most of the rules, so that few points are refused."""
from combo_models import DENSE, ENCODERS, EXPERTS, REWARDS

PLAIN = dict(family="llama", text=None, layers=2, heads=8, kv=4, tied=False,
             mtp=False, freeze=None, moe_freq=None, experts=None, capacity=64,
             shape="mixed", mask=None, items="some", docs=16, long=None, rows=None,
             balance=None, sized=False, repack=False, algorithm=None, seed=1,
             objective="sft", options=[], run=[], lossy=[], verify=[],
             dtype="fp64", accum=1, optimizer=["--optimizer", "sgd"],
             length=["--steps", "4"], save=[],
             gen=None, gen_layers=2, gen_freeze=None, tasks=["verify"],
             then=None, plan=None)

PLAIN_PLAN = dict(pp=1, apart=0, tp=1, cp=1, dp=1, ep=1, split=[], encoder=[],
                  recompute=None, kind="gpipe", chunks=1, placement="loop",
                  m=2, sched=[], csv=False, planned=False,
                  gen_split=["-p", "1"])

KINDS = ["gpipe", "1f1b", "eager-1f1b", "interleaved", "looped-bfs", "hanayo",
         "zb-h1", "zb-h2", "zb-interleaved", "zbv", "v-half", "v-min",
         "dualpipev", "dualpipe", "seq1f1b", "auto"]
BRANCHED = ["gpipe", "looped-bfs", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"]
# Options that few points can take: others must refuse them.
CLASHES = [
    ("split", ["--cp-exact"]), ("split", ["--experts-over-tp"]),
    ("split", ["--expert-padding"]), ("split", ["--expert-limit", "1"]),
    ("split", ["--zero", "3", "--resident", "1"]), ("split", ["--ep", "2"]),
    ("split", ["--cp", "2"]), ("split", ["--tp", "2"]), ("split", ["--mtp"]),
    ("split", ["--encoder-mesh", "pp=1,dp=2"]), ("split", ["--freeze", "vision"]),
    ("split", ["--encoder-ranks", "1"]), ("split", ["--placement", "v"]),
    ("split", ["-c", "2"]), ("split", ["--expert-capacity", "0.5"]),
    ("split", ["--recompute", "auto"]), ("sched", ["--slices", "2"]),
    ("sched", ["--slices", "3"]), ("sched", ["--group", "2"]),
    ("sched", ["-m", "1"]), ("run", ["--router", "aux=0.1"]),
    ("run", ["--router", "bias-rate=0.1"]), ("run", ["--loss", "mtp=0.3"]),
    ("run", ["--loss", "generator=2"]), ("run", ["--blas-threads", "2"]),
    ("run", ["--row-invariant"]), ("run", ["--message-size", "max"]),
    ("run", ["--message-size", "exchange"]), ("run", ["--objective", "dpo,beta=0.3"]),
    ("run", ["--objective", "grpo"]), ("run", ["--objective", "distill"]),
    ("run", ["--data", "eval"]), ("run", ["--max-in-flight", "1"])]
FROZEN = ["embedding", "head", "model.norm", "model.layers.0",
          "model.layers.[0-1]", "model.layers.[1-9]", "model.layers.*[13]"]


def chance(rng, x):
    return rng.random() < x


def has_experts(p):
    return p["family"] in EXPERTS


def draw_stages(rng, kind, plan):
    chunks, placement = 1, "loop"
    if kind in ("zbv", "v-half", "v-min", "dualpipev"):
        chunks, placement = 2, "v"
    elif kind == "hanayo":
        chunks, placement = rng.choice([2, 4]), "v"
    elif kind in ("interleaved", "zb-interleaved"):
        chunks = rng.choice([2, 2, 3])
    elif kind == "dualpipe":
        placement = "both-ways"
    elif kind in ("gpipe", "looped-bfs", "auto"):
        chunks, placement = rng.choice([(1, "loop"), (2, "loop"), (2, "v"),
                                        (3, "v"), (3, "loop")])
    plan.update(kind=kind, chunks=chunks, placement=placement)


def draw_microbatches(rng, plan, total):
    """Sets the microbatches of the plan. Returns whether the kind takes as many
    as the step has, if total is given."""
    pp, kind = plan["pp"], plan["kind"]
    many = {"interleaved": [pp, 2 * pp], "zb-interleaved": [pp, 2 * pp],
            "dualpipe": [2 * pp, 2 * pp + 2],
            "dualpipev": [2 * pp, 2 * pp + 1]}.get(kind)
    if total:
        plan["m"], left = divmod(total, plan["dp"])
        if kind in ("interleaved", "zb-interleaved"):
            many = [plan["m"]] if plan["m"] % pp == 0 else [0]
        return not left and (not many or plan["m"] >= many[0] > 0) and (
            kind != "dualpipe" or plan["m"] % 2 == 0)
    plan["m"] = rng.choice(many) if many else rng.randint(1, 2 * pp + 1)
    return True


def draw_schedule(rng, p, plan):
    sched = plan["sched"]
    if plan["kind"] == "seq1f1b":
        sched += ["--slices", rng.choice(["2", "3", "3,1,2"])]
    elif plan["kind"] == "gpipe" and not p["gen"] and not plan["encoder"] and (
            p["family"] not in ENCODERS and
            plan["chunks"] == 1 and chance(rng, 0.2)):
        sched += ["--slices", "2"]
    if plan["kind"] == "auto":
        sched += ["--time", "0.1"]
        sched += rng.choice([[], [], ["--whole-backward"],
                             ["--minimize", "span"], ["--minimize", "memory"]])
    elif chance(rng, 0.4):
        sched += ["--depth", rng.choice(["0", "1", "3", "auto"])]
    plan["csv"] = chance(rng, 0.1)
    plan["planned"] = chance(rng, 0.4)


def slices_of(plan):
    return "--slices" in plan["sched"]


def draw_encoder(rng, p, plan):
    """Draws how the encoders are placed. Returns the pipeline ranks they add."""
    of = ENCODERS[p["family"]]
    shape = rng.choice(["whole", "whole", "ranks", "mesh", "mesh", "shared"])
    if plan["placement"] == "both-ways" and shape != "shared":
        return 0
    if shape == "ranks":
        n = rng.randint(1, 2) if len(of) > 1 else 1
        plan["encoder"] = ["--encoder-ranks", str(n)]
        return n
    if shape == "shared":
        row = plan["dp"] * plan["cp"] * plan["tp"]
        tp = rng.choice([k for k in (1, 2, 4) if row % k == 0])
        plan["encoder"] = ["--encoder-mesh", "shared,tp=%d" % tp]
        return 0
    if shape == "whole":
        return 0
    added = 0
    for name in of:
        if name == of[-1] and len(of) > 1 and chance(rng, 0.3):
            sizes = rng.choice(["shared", "shared,tp=%d" % plan["tp"]])
        else:
            pp = rng.choice([1, 1, 2])
            added += pp
            sizes = "pp=%d" % pp + rng.choice(
                ["", "", ",dp=2", ",dp=3", ",tp=2", ",cp=2", ",dp=2,tp=2",
                 ",cp=2,tp=2"])
        plan["encoder"] += ["--encoder-mesh",
                            (name + ":" if len(of) > 1 else "") + sizes]
    return added


def draw_ranks(rng, p, plan):
    """Sets tp, cp, dp and ep. Returns whether they are not too many."""
    sliced = slices_of(plan)
    three = p["capacity"] == 48
    plan["tp"] = rng.choice([1, 3] if three else [1, 1, 2, 2, 4])
    if p["family"].startswith("phi3") and p["kv"] < p["heads"]:
        plan["tp"] = 1
    if p["family"] in ENCODERS and plan["tp"] > p["heads"] // 2:
        plan["tp"] = 2
    plan["cp"] = rng.choice([1, 1, 2] if three else [1, 1, 2, 2, 4])
    plan["dp"] = rng.choice([1, 1, 2, 2, 3])
    split = plan["split"]
    if plan["cp"] > 1:
        whole = (p["kv"] % (plan["tp"] * plan["cp"]) == 0 and
                 (p["family"] not in ENCODERS or
                  p["heads"] > 4 and plan["tp"] * plan["cp"] == 2))
        split += ["--cp-exchange", "gather" if sliced else
                  rng.choice(["gather", "ring"] + ["a2a", "a2a"] * whole)]
        if not sliced and p["family"] not in ENCODERS and not p["gen"] and chance(rng, 0.12):
            split[-1] = rng.choice(["gather", "a2a"] if whole else ["gather"])
            split += ["--cp-exact"]
    if has_experts(p):
        over = plan["tp"] > 1 and chance(rng, 0.4)
        row = plan["dp"] * plan["cp"] * (plan["tp"] if over else 1)
        number = 6 if p["family"] == "deepseek-v2" else 8
        plan["ep"] = rng.choice([k for k in (1, 2, 2, 3, 4)
                                 if row % k == 0 and number % k == 0])
        if over and plan["ep"] > 1:
            split += ["--experts-over-tp"]
        if p["experts"] and plan["ep"] > 1 and chance(rng, 0.5):
            split += ["--expert-padding"]
        if plan["ep"] > 1 and chance(rng, 0.5):
            split += ["--expert-limit", rng.choice(["1", "1.6"])]
    return plan["pp"] * plan["tp"] * plan["cp"] * plan["dp"] <= 16


def draw_split(rng, p, plan):
    split = plan["split"]
    if chance(rng, 0.7):
        zero = rng.choice(["0", "1", "3", "3"])
        split += ["--zero", zero]
        if zero == "3" and chance(rng, 0.5):
            split += ["--resident", str(rng.randint(1, max(1, plan["chunks"])))]
    if chance(rng, 0.2):
        axes = ["tp", "cp", "dp", "pp"]
        rng.shuffle(axes)
        split += ["--mesh-order", "-".join(axes)]
    stages = plan["apart"] + (plan["pp"] - plan["apart"]) * plan["chunks"]
    if p["family"] not in ENCODERS and not p["mtp"] and chance(rng, 0.3):
        cuts = sorted(rng.randint(0, p["layers"]) for _ in range(stages - 1))
        counts = [b - a for a, b in zip([0] + cuts, cuts + [p["layers"]])]
        if plan["placement"] != "both-ways":
            split += ["--layers", ",".join(map(str, counts))]
    elif chance(rng, 0.2):
        split += ["--rank-speed", ",".join(rng.choice("123")
                                           for _ in range(plan["pp"]))]
    how = rng.choice([None, None, "selective", "full", "full", "list"])
    if how == "list":
        modes = [rng.choice(["none", "selective", "full"])
                 for _ in range(stages)]
        how = ",".join(modes)
    if how and "full" in how and slices_of(plan):
        how = "selective"
    if plan["kind"] == "auto" and how and "," in how:
        how = "full"
    plan["recompute"] = how


def shared_state(split):
    """The options of a mesh that a generator has as well."""
    found = []
    for option in ("--zero", "--resident", "--mesh-order"):
        if option in split:
            at = split.index(option)
            found += split[at:at + 2]
    return found


def draw_generator_plan(rng, p, plan):
    pp = rng.choice([1, 1, 2])
    if p["family"] in ENCODERS and (
            not plan["encoder"] or "shared" in "".join(plan["encoder"])):
        tp, cp, dp = plan["tp"], plan["cp"], plan["dp"]
    else:
        tp, cp, dp = (rng.choice([1, 2]), rng.choice([1, 1, 2]),
                      rng.choice([1, 2, 3, plan["dp"]]))
    split = ["-p", str(pp), "--tp", str(tp), "--cp", str(cp), "--dp", str(dp)]
    if cp > 1:
        split += ["--cp-exchange", rng.choice(["gather", "a2a", "ring"])]
    split += rng.choice([[], ["--recompute", "full"],
                         ["--recompute", "selective"]])
    plan["gen_split"] = split + shared_state(plan["split"])
    if p["gen_freeze"]:
        plan["gen_split"] += ["--freeze", p["gen_freeze"]]
    return pp * tp * cp * dp <= 8


def try_plan(rng, p, total):
    plan = {name: list(x) if isinstance(x, list) else x
            for name, x in PLAIN_PLAN.items()}
    branched = p["gen"] or p["family"] in ENCODERS and chance(rng, 0.7)
    draw_stages(rng, rng.choice(BRANCHED if branched else KINDS), plan)
    plan["pp"] = rng.choice([2, 4] if plan["kind"] == "dualpipe"
                            else [1, 2, 2, 2, 3, 4])
    if plan["kind"] == "seq1f1b" and p["family"] in ENCODERS:
        return None
    if plan["pp"] * plan["chunks"] > p["layers"] + 3:
        return None
    draw_schedule(rng, p, plan)
    if not draw_ranks(rng, p, plan) or not draw_microbatches(rng, plan, total):
        return None
    if p["family"] in ENCODERS:
        plan["apart"] = draw_encoder(rng, p, plan)
        plan["pp"] += plan["apart"]
    draw_split(rng, p, plan)
    if p["gen"] and (plan["chunks"] > 1 or not draw_generator_plan(rng, p, plan)):
        return None
    if (slices_of(plan) or "--cp-exact" in plan["split"]) and (
            "--router" in p["run"]):
        return None
    return plan


def draw_plan(rng, p, total=None):
    for _ in range(1000):
        plan = try_plan(rng, p, total)
        if plan:
            return plan
    return None


def draw_dpo(rng):
    o = []
    if chance(rng, 0.6):
        o += ["preference-loss=" + rng.choice(["sigmoid", "hinge", "ipo",
                                               "robust"])]
    if chance(rng, 0.3):
        o = ["label-smoothing=0.2"]
    if chance(rng, 0.4):
        o += ["sft-weight=0.3"] + rng.choice(
            [[], ["sft-aggregate=seq-mean-mean"],
             ["sft-aggregate=token-mean"]])
    if chance(rng, 0.2):
        o += ["preference-weight=0.7"]
    o += rng.choice([[], ["average-logprobs"], ["reference-free"]])
    return o


def draw_grpo(rng):
    o = []
    if chance(rng, 0.4):
        o += ["preset=" + rng.choice(["trl", "verl"])]
    if chance(rng, 0.4):
        o += ["policy-loss=" + rng.choice(["ppo", "cispo"])]
    if chance(rng, 0.6):
        o += ["ratio=" + rng.choice(["token", "sequence", "on-policy", "none"])]
    if chance(rng, 0.5):
        o += ["importance=" + rng.choice(["tis", "icepop", "sequence-mask",
                                          "sequence-product"]),
              "importance-max=1.5"]
    if chance(rng, 0.5):
        o += ["kl=" + rng.choice(["k1", "k2", "k3"]), "kl-weight=0.2",
              "kl-importance=" + rng.choice(["none", "score", "generation",
                                             "previous"])]
    if chance(rng, 0.5):
        how = rng.choice(["token-mean", "seq-mean-sum", "seq-mean-mean",
                          "constant"])
        o += ["aggregate=" + how]
        if how == "constant":
            o += ["aggregate-length=7"]
    if chance(rng, 0.3):
        o += ["entropy-weight=0.1"]
    return o


def draw_objective(rng, p):
    p["objective"] = rng.choice(["dpo", "grpo", "distill", "reward"])
    if p["objective"] == "reward":
        p["family"], p["tied"] = rng.choice(REWARDS), False
    elif p["family"] in ENCODERS:
        p["objective"] = "distill"
    p["options"] = {"dpo": draw_dpo, "grpo": draw_grpo}.get(
        p["objective"], lambda rng: [])(rng)


def draw_frozen(rng, p):
    names = list(FROZEN)
    of = ENCODERS.get(p["family"])
    if of:
        names = rng.sample(of + ["projector", "language"], 2) + names[:2]
        if p["gen"]:
            names = of + ["projector"] + FROZEN[:2]
    return ",".join(rng.sample(names, rng.choice([1, 1, 2])))


def draw_model(rng, p):
    p["family"] = rng.choice(rng.choice([DENSE, EXPERTS, EXPERTS,
                                         list(ENCODERS)]))
    p["layers"] = rng.randint(2, 6)
    p["heads"] = rng.choice([8, 8, 8, 4])
    p["kv"] = rng.choice([p["heads"], p["heads"] // 2, 2])
    if p["family"].startswith("phi3") and chance(rng, 0.8):
        p["kv"] = p["heads"]
    p["tied"] = chance(rng, 0.4)
    if "llava" in p["family"]:
        p["text"] = rng.choice([None, "mistral", "qwen2", "qwen3"])
    if chance(rng, 0.06) and p["family"] not in ENCODERS:
        p.update(heads=6, kv=3, capacity=48)
    if p["family"] == "deepseek-mtp":
        p["mtp"], p["tied"] = chance(rng, 0.7), False
    if not p["mtp"] and chance(rng, 0.25):
        p["gen"] = rng.choice(DENSE)
        p["gen_layers"] = rng.randint(1, 4)
        p["gen_freeze"] = rng.choice([None, None, "head", "model.norm"])
    if not p["mtp"] and not p["gen"] and chance(rng, 0.3):
        draw_objective(rng, p)
    if not p["mtp"] and chance(rng, 0.3):
        p["freeze"] = draw_frozen(rng, p)
    if has_experts(p):
        if chance(rng, 0.02):
            p["moe_freq"] = "2"
        if chance(rng, 0.4):
            # Sides of a pair begin alike, so that rounding would choose.
            pairs = p["objective"] in ("dpo", "reward")
            p["experts"] = ["--expert-capacity", rng.choice(["0.5", "1", "1.3"]),
                            "--expert-drop",
                            rng.choice(["position"] + ["probs"] * (not pairs))]


def draw_run(rng, p):
    if chance(rng, 0.15):
        p["run"] += ["--row-invariant"]
    if chance(rng, 0.15):
        p["run"] += ["--message-size", rng.choice(["exchange", "max"])]
    if chance(rng, 0.15) and p["objective"] != "reward":
        p["lossy"] += ["--temperature", "0.7"]
    if p["mtp"]:
        p["run"] += ["--loss", "mtp=0.7"]
    if p["gen"] and chance(rng, 0.7):
        p["run"] += ["--loss", "generator=" + rng.choice(["0.5", "3"])]
    if has_experts(p) and chance(rng, 0.4):
        p["run"] += ["--router", rng.choice(["aux=0.3", "z=0.02",
                                             "aux=0.3,z=0.02"])]
        p["lossy"] += ["--router", "rule=" + rng.choice(["tokens", "documents",
                                                         "megatron"])]
        p["verify"] += ["--router", "rule=documents"]
    if p["family"] == "deepseek-v3" and chance(rng, 0.4):
        p["lossy"] += ["--router", "bias-rate=0.01,bias-rule="
                       + rng.choice(["megatron", "torchtitan"])]
    if chance(rng, 0.2):
        p["verify"] += ["--eval", "eval"]


def draw_data(rng, p):
    p["shape"] = rng.choice(["mixed", "mixed", "ones", "whole", "even"])
    p["mask"] = rng.choice([None, "some", "whole"])
    p["items"] = rng.choice(["some", "some", "all", "many", "none"])
    p["docs"] = rng.randint(6, 50)
    p["algorithm"] = rng.choice([None, None, "first-fit", "next-fit", "none"])
    if p["algorithm"] == "none":
        p["rows"] = rng.choice([1, 1, 2]) if p["shape"] != "whole" else 1
    elif chance(rng, 0.25):
        p["balance"] = "tokens"
        p["sized"] = (p["plan"]["cp"] > 1 and p["family"] not in ENCODERS and
                      "--cp-exact" not in p["plan"]["split"] and
                      chance(rng, 0.6))
        p["algorithm"] = None
    if p["family"] not in ENCODERS and chance(rng, 0.2) and (
            p["algorithm"] != "none"):
        p["long"] = rng.choice(["split", "split", "truncate", "drop"])
    p["repack"] = chance(rng, 0.1)


def draw_tasks(rng, p):
    if chance(rng, 0.08):
        p["dtype"] = "fp32"
    if p["family"] in EXPERTS and p["objective"] == "sft" and chance(rng, 0.2):
        p["tasks"].append("replay")
    if p["objective"] in ("sft", "reward", "grpo") and chance(rng, 0.2):
        p["tasks"].append("scores")
    if p["objective"] == "sft" and not p["gen"] and (
            p["family"] not in ENCODERS and chance(rng, 0.08)):
        p["tasks"].append("generate")
    for task in ("evaluate", "trace"):
        if chance(rng, 0.1):
            p["tasks"].append(task)
    if chance(rng, 0.2) and not (p["freeze"] or p["gen"] or
                                 p["plan"]["recompute"]):
        p["tasks"].append("profile")
    if chance(rng, 0.6):
        p["tasks"].append(rng.choice(["train"] * 5 + ["mpi"]))
        p["accum"] = rng.choice([1, 1, 2])
        p["optimizer"] = rng.choice([
            ["--optimizer", "sgd"], ["--eps", "1e-4", "--weight-decay", "0.1"],
            ["--eps", "1e-4", "--save-background", "--save-every", "1"],
            ["--optimizer", "sgd", "--eval", "eval", "--eval-every", "2"]])
        p["length"] = rng.choice([
            ["--steps", "4"], ["--steps", "4"],
            ["--epochs", "2", "--last-batch", "short"],
            ["--epochs", "2", "--last-batch", "drop"]])
        p["save"] = rng.choice([[], [], ["--shard-size", "4KB"],
                                ["--save-dtype", "fp32"]])
        if chance(rng, 0.6):
            plan = p["plan"]
            p["then"] = draw_plan(rng, p, plan["m"] * plan["dp"])
            if p["sized"] and p["then"] and p["then"]["cp"] != plan["cp"]:
                p["then"] = None
    if p["plan"]["planned"] and p["family"] not in ENCODERS and not p["gen"]:
        p["tasks"].append("memory")


def draw_clash(rng, p):
    """The plan of one rank has no clash, so nothing is compared with it."""
    where, words = rng.choice(CLASHES)
    p["tasks"], p["then"] = ["verify"], None
    if where == "run":
        p["run"] += words
    else:
        p["plan"][where] += words


def draw_point(rng):
    p = {name: list(x) if isinstance(x, list) else x
         for name, x in PLAIN.items()}
    p["seed"] = rng.randrange(1 << 30)
    draw_model(rng, p)
    draw_run(rng, p)
    p["plan"] = draw_plan(rng, p) or dict(PLAIN_PLAN)
    draw_data(rng, p)
    draw_tasks(rng, p)
    if chance(rng, 0.1):
        draw_clash(rng, p)
    return p
