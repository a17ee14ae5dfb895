# SPDX-License-Identifier: MIT
"""combo_runs - the command lines of a point of combos, and what they must give.

An outcome is a Fault, a Refusal, or neither if everything agrees."""
import json
import math
import os
import re
import shutil
import signal
import subprocess

from combo_models import ENCODERS, make_config, make_generator, write_lines
from combo_points import PLAIN_PLAN

TIMEOUT = 300
COMPARE = "$BUILDDIR/tests/golden/compare_tensors"
LOSSES = ["--router", "--loss"]
CANNOT = ": pprun cannot run this plan: "
TIMES = ("seconds", "tokens_per_s", "bubble", "products", "expert_rounds", "xxh3")


class Stop(Exception):
    """A command that ends a point: its name, its status, and what it said."""

    def __init__(self, name, status, text):
        super().__init__(name, status, text)
        self.name, self.status, self.text = name, status, text

    def key(self):
        """What two stops have in common if they have one cause."""
        said = re.sub(r"'[^']*'|/[^ :]*|-?\d[\d.e+-]*", "_", self.text)
        return type(self).__name__, self.name, self.status, said[:60]


class Fault(Stop):
    pass


class Refusal(Stop):
    pass


def value_of(split, option):
    return int(split[split.index(option) + 1]) if option in split else 1


def groups(words):
    """Splits options into lists of an option and its values."""
    found = []
    for word in words:
        if re.match("--?[a-z]", word) or not found:
            found.append([])
        found[-1].append(word)
    return found


def world(p):
    """Returns the number of ranks of the plan of a point."""
    plan = p["plan"]
    row = plan["tp"] * plan["cp"] * plan["dp"]
    pp, more = plan["pp"], 0
    for mesh in plan["encoder"]:
        if "pp=" in mesh:
            sizes = dict(x.split("=") for x in mesh.split(":")[-1].split(","))
            pp -= int(sizes["pp"])
            more += math.prod(map(int, sizes.values()))
    if p["gen"]:
        more += math.prod(value_of(plan["gen_split"], x)
                          for x in ("-p", "--tp", "--cp", "--dp"))
    return pp * row + more


def has_mpi():
    return shutil.which("mpirun") and " mpi" in subprocess.run(
        ["pprun", "-V"], capture_output=True, text=True, check=True).stdout


def plans_of(p):
    return [plan for plan in (p["plan"], p["then"]) if plan]


class Commands:
    """Runs commands in a folder; commands has what it ran, and notes what the
    planners said that pprun cannot run."""

    def __init__(self, folder):
        self.folder, self.commands, self.notes = folder, [], []
        self.skip = set(TIMES)  # members of lines that are not compared

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def call(self, name, words):
        """Runs a command, which may only end well or be refused in one line."""
        words = [str(x) for x in words]
        line = " ".join(x if re.fullmatch(r"[\w./:=,@%+$-]+|\$\(.*\)", x)
                        else "'%s'" % x for x in words)
        self.commands.append(line)
        with subprocess.Popen(
                ["bash", "-c", line], cwd=self.folder, text=True,
                errors="replace", stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True) as run:
            try:
                out, err = run.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                raise Fault(name, "hang", "after %d s" % TIMEOUT) from None
        lines = err.splitlines()
        if run.returncode == 0 and "-q" not in words[:2]:
            self.notes += [x.split(CANNOT)[1] for x in lines if CANNOT in x]
            return out
        if run.returncode == 0:
            if lines and words[0] != "mpirun":
                raise Fault(name, 0, "says: " + lines[0])
            return out
        said = lines[0] if lines else out.strip().split("\n")[-1]
        proper = len(lines) == 1 or (
            len(lines) == 2 and lines[1].startswith("try '"))
        if proper and (run.returncode == 2 or run.returncode == 1 and
                       name != "compare"):
            raise Refusal(name, run.returncode, said)
        raise Fault(name, run.returncode, said)

    def compare_logs(self, a, b, tolerance=1e-9, skip=()):
        """Compares two files of JSON objects, number by number."""
        with open(self.path(a)) as f, open(self.path(b)) as g:
            got, want = ([json.loads(x) for x in h] for h in (f, g))
        if len(got) != len(want):
            raise Fault("compare", 1, "%d lines, not %d" % (len(got), len(want)))
        for x, y in zip(got, want):
            for name in (set(x) | set(y)) - self.skip - set(skip):
                if not alike(x.get(name), y.get(name), tolerance):
                    raise Fault("compare", 1, "%s is %.80s, not %.80s" % (
                        name, x.get(name), y.get(name)))


class Runs(Commands):
    """Runs a point in a folder of its own."""

    def __init__(self, p, folder, golden):
        super().__init__(folder)
        self.p, self.golden, self.refusals = p, golden, []
        if any("--slices" in plan["sched"] for plan in plans_of(p)):
            self.skip.add("expert_load")

    def model_options(self):
        p, o = self.p, []
        if p["mtp"]:
            o += ["--mtp"]
        if p["freeze"]:
            o += ["--freeze", p["freeze"]]
        if p["moe_freq"]:
            o += ["--moe-layer-freq", p["moe_freq"]]
        if p["family"] in ENCODERS and "llava" not in p["family"]:
            if "vision" in ENCODERS[p["family"]]:
                o += ["--image-patches", 16]
            o += ["--clip-rows", 8] if "audio" in ENCODERS[p["family"]] else []
        return o + (p["experts"] or []) + ["--seq-len", p["capacity"]]

    def judge(self, name):
        """Checks that the planners noted what pprun cannot run of NAME.json,
        whatever its options are, and nothing else."""
        said = set(self.notes)
        try:
            self.call("pprun", ["pprun", "-q", "--print-memory", "--data",
                                "packed", name + ".json"])
            why = ""
        except Refusal as stop:
            why = stop.text.partition(name + ".json: ")[2]
        if why[:1] == "/" and why not in said:
            raise Fault("notes", 0, "no note that pprun says: " + why)
        if not why and said:
            raise Fault("notes", 0, "pprun runs a plan noted with: " +
                        said.pop())

    def plan(self, name, plan):
        """Writes NAME.json and keeps the notes about it."""
        self.notes = []
        p, whole, of = self.p, name + ".json", name + ".split"
        words = ["-p", plan["pp"]]
        for option, size in (("-c", "chunks"), ("--tp", "tp"), ("--cp", "cp"),
                             ("--dp", "dp"), ("--ep", "ep")):
            words += [option, plan[size]] if plan[size] > 1 else []
        if plan["placement"] != "loop":
            words += ["--placement", plan["placement"]]
        if plan["recompute"]:
            words += ["--recompute", plan["recompute"]]
        self.call("ppsplit", ["ppsplit", *words, *plan["encoder"], *plan["split"],
                              *self.model_options(), "-o", of,
                              "model"])
        if p["gen"]:
            self.call("ppsplit", ["ppsplit", "-q", *plan["gen_split"],
                                  "--seq-len", p["capacity"], "-o",
                                  name + ".gen", "generator"])
            self.call("combine", [
                "ppsplit", "--combine",
                "language=%s,generator=%s.gen" % (of, name), "-o",
                name + ".both"])
            of = name + ".both"
        data = ["--data", "packed"] if plan["planned"] else []
        if p["objective"] not in ("sft",) and plan["planned"]:
            data += ["--objective", p["objective"]]
        self.call("ppsched", ["ppsched", "-s", plan["kind"], "-m", plan["m"],
                              *plan["sched"], *data, "-o", whole, of])
        if plan["csv"]:
            self.call("csv", ["ppsched", "-q", "--export", "csv-comms", "-o",
                              name + ".csv", whole])
            depth = plan["sched"] if "--depth" in plan["sched"] else []
            self.call("csv", ["ppsched", "--csv", name + ".csv", *depth,
                              *data, "-o", whole, of])
        return whole

    def pack_options(self):
        p, o = self.p, ["-q", "-l", self.p["capacity"]]
        for option, size in (("--cp", "cp"), ("--tp", "tp")):
            need = [plan[size] for plan in plans_of(p)]
            if p["gen"]:
                need += [value_of(plan["gen_split"], option)
                         for plan in plans_of(p)]
            need = math.lcm(*need)
            o += [option, need] if need > 1 else []
        of = ENCODERS.get(p["family"], [])
        if "vision" in of:
            o += ["--image-token", 31]
            o += ["--patch", 4] if "llava" in p["family"] else ["--merge", 2]
        if p["family"] == "llava-full":
            o += ["--class-feature"]
        if "audio" in of:
            o += ["--audio-token", 32 if "vision" in of else 31]
        if p["long"]:
            o += ["--oversize", p["long"]]
        if p["balance"]:
            o += ["--balance", p["balance"]]
        if p["sized"]:
            o += ["--cp-sizes", "per-sequence"]
        if p["algorithm"]:
            o += ["-a", p["algorithm"]]
        return o + (["--rows", p["rows"]] if p["rows"] else [])

    def pack(self, name, seed, count):
        p, lines = self.p, name + ".jsonl"
        write_lines(self.path(lines), p, seed, count)
        options = self.pack_options()
        self.call("pppack", ["pppack", *options, "-o", name, lines])
        if p["repack"]:
            self.call("pppack", ["pppack", *options, "-o", name + "-again", name])
            self.call("pppack", ["pppack", "-q", "--check", name + "-again"])
            self.call("mv", ["mv", "-T", name, name + "-first"])
            self.call("mv", ["mv", "-T", name + "-again", name])
        if p["objective"] == "distill":
            self.call("teacher", [
                "ppscore", "-q", "--data", name, "--init", 2, "--top-k", 5,
                "-o", name + ".teacher", "one.json"])
            self.call("mv", ["mv", "-T", name, name + "-plain"])
            self.call("pppack", ["pppack", *options, "-o", name, "--add-column",
                                 "topk=%s.teacher" % name, name + "-plain"])

    def prepare(self):
        p = self.p
        os.mkdir(self.path("model"))
        with open(self.path("model", "config.json"), "w") as f:
            json.dump(make_config(self.golden, p), f)
        if p["gen"]:
            os.mkdir(self.path("generator"))
            with open(self.path("generator", "config.json"), "w") as f:
                json.dump(make_generator(self.golden, p), f)
        plan = p["plan"]
        one = dict(PLAIN_PLAN, m=plan["m"] * plan["dp"] * p["accum"])
        if p["gen_freeze"]:
            one["gen_split"] = ["-p", "1", "--freeze", p["gen_freeze"]]
        self.plan("one", one)
        self.pack("packed", p["seed"], p["docs"])
        if "eval" in p["verify"] or "eval" in p["optimizer"]:
            self.pack("eval", p["seed"] + 1, 9)
        for name in ["plan"] + ["then"] * bool(p["then"]):
            self.plan(name, p[name])
            self.judge(name)

    def pprun(self, name, plan, words, first=("pprun",)):
        p = self.p
        reads = name in ("scores", "generate", "evaluate")
        if reads:
            first = ("ppscore",)
        objective = ["--objective", ",".join([p["objective"], *p["options"]])]
        if p["objective"] == "sft" or name in ("scores", "generate"):
            objective = []
        run = list(p["run"])
        for option in (["--message-size"] if plan == "one.json" else []) + (
                LOSSES if reads else []):
            while option in run:
                at = run.index(option)
                del run[at:at + 2]
        if "--weights" not in words:
            words = ["--init", 1, *words]
        return self.call(name, [*first, "-q", "--data", "packed", *objective,
                                *run, *words, plan])

    def verify(self):
        p = self.p
        out = self.pprun("pprun", "plan.json", [
            "--verify", "--dtype", p["dtype"], *p["verify"]])
        if not out.splitlines()[-1].startswith("the same"):
            raise Fault("pprun", 0, "verifies, and does not say so")

    def train(self, mpi=False):
        p = self.p
        words = ["--dtype", "fp64", "--lr", "1e-2", "--clip", "0.5",
                 *p["optimizer"], *p["lossy"], *p["save"]]
        self.pprun("one", "one.json", [
            *words, *p["length"], "--save", "one", "--dump-grads", "one.grads",
            "-o", "one.log"])
        with open(self.path("one.log")) as f:
            steps = len(f.readlines())
        first = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                 world(p), "pprun", "--transport", "mpi"] if mpi else ["pprun"]
        if mpi and not has_mpi():
            first = ["pprun"]
        if p["accum"] > 1:
            words += ["--grad-accum", p["accum"]]
        words += ["--save", "run", "--resume", "run", "-o", "run.log"]
        # Both runs evaluate after the last of these steps: it is even.
        half = steps // 4 * 2
        if half:
            self.pprun("train", "plan.json", [
                *words, *p["length"][2:], "--steps", half], first)
        self.pprun("resume", "then.json" if p["then"] else "plan.json", [
            *words, *p["length"], "--dump-grads", "run.grads"])
        self.compare_logs("run.log", "one.log")
        self.call("compare", [COMPARE, "1e-6", "1e-6", "run.grads", "one.grads"])
        for part in [""] + ["/generator"] * bool(p["gen"]):
            self.call("compare", [COMPARE, "1e-8", "1e-8", "run/latest" + part,
                                  "one/latest" + part])
        for name, plan in (("one", "one.json"), ("many", "plan.json")):
            self.pprun("weights", plan, [
                "--dtype", "fp64", *p["lossy"], "--weights", "one/latest",
                "--steps", 1, "-o", name + ".step",
                *(["--grad-accum", p["accum"]] if name == "many" else [])])
        self.compare_logs("many.step", "one.step")

    def mpi(self):
        self.train(True)

    def scores(self):
        options = [] if self.p["objective"] == "reward" else [
            "--top-k", 3, "--entropy"]
        for name, plan in (("one", "one.json"), ("many", "plan.json")):
            self.pprun("scores", plan, ["--dtype", "fp64", *options,
                                        "--logprobs", "-o", name + ".scores"])
        self.compare_logs("many.scores", "one.scores")

    def evaluate(self):
        for name, plan in (("one", "one.json"), ("many", "plan.json")):
            self.pprun("evaluate", plan, ["--dtype", "fp64", "--eval", "packed",
                                          "-o", name + ".loss"])
        self.compare_logs("many.loss", "one.loss")

    def generate(self):
        for name, plan in (("one", "one.json"), ("many", "plan.json")):
            self.pprun("generate", plan, ["--dtype", "fp64", "--generate", 3,
                                          "--sample", 7, "-o", name + ".text"])
        self.compare_logs("many.text", "one.text")

    def trace(self):
        """Runs what looks at a run and at its plan."""
        p = self.p
        words = ["--dtype", "fp64", "--steps", 1]
        self.pprun("trace", "plan.json", [*words, "--trace", "trace.json", "-o",
                                          "trace.log"])
        self.call("overlay", ["ppsched", "-q", "--overlay", "trace.json",
                              "plan.json"])
        self.call("stats", ["ppsched", "-q", "--stats", "plan.json"])
        self.call("timeline", ["ppsched", "-q", "-t", "plan.json"])
        if not p["gen"]:
            self.call("table", ["ppsplit", "-q", "-t", "plan.json"])
        self.pprun("hashes", "plan.json", [
            *words, "--print-metadata-hash", "-o", "hashes"])

    def profile(self):
        """Plans with the costs of a run."""
        words = ["--dtype", "fp64", "--steps", 4]
        self.pprun("profile", "plan.json", [*words, "--profile", "costs.json",
                                            "-o", "profile.log"])
        self.call("costs", ["ppsplit", "-q", "-p", 2, "--costs", "costs.json",
                            *self.model_options(), "-o", "costly.split",
                            "model"])
        self.call("costs", ["ppsched", "-q", "-s", "1f1b", "-m", 3, "--data",
                            "packed", "-o", "costly.json", "costly.split"])
        self.call("costs", ["ppsched", "-q", "--stats", "costly.json"])

    def replay(self):
        words = ["--dtype", "fp64", "--steps", 1]
        self.pprun("record", "one.json", [*words, "--record-routing", "routes",
                                          "-o", "record.log"])
        accum = ["--grad-accum", self.p["accum"]]
        self.pprun("replay", "plan.json", [*words, *accum, "--replay-routing",
                                           "routes", "-o", "replay.log"])
        self.compare_logs("replay.log", "record.log")

    def memory(self):
        p = self.p
        objective = [] if p["objective"] == "sft" else ["--objective",
                                                        p["objective"]]
        planned = json.loads(self.call("stats", [
            "ppsched", "-q", "--stats", *objective, "plan.json"]))["rank_bytes"]
        need = json.loads(self.call("need", [
            "pprun", "-q", "--print-memory", "--data", "packed", *objective,
            "plan.json"]))
        need = [rank["total"] for rank in need]
        if planned != need[:len(planned)]:
            raise Fault("memory", 1, "ppsched plans %s, not %s" % (planned, need))

    def run(self):
        """Runs the point. Raises what ends it; tasks may be refused each."""
        self.prepare()
        for task in self.p["tasks"]:
            try:
                getattr(self, task)()
            except Refusal as stop:
                if task == "verify":
                    raise
                self.refusals.append(stop)


def alike(x, y, tolerance):
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(alike(x[name], y[name], tolerance)
                                            for name in x)
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(alike(*z, tolerance) for z in zip(x, y))
    if isinstance(x, float) or isinstance(y, float):
        return None not in (x, y) and abs(x - y) <= tolerance * max(1, abs(y))
    return x == y
