# SPDX-License-Identifier: MIT
"""combo_models - the models and the lines of data of combos.

A model is one of tests/golden with other numbers of layers and heads, which
more ranks can divide. Words of models with encoders are below 31; 31 and 32
stand for features. Other models have 67 words."""
import json
import os
import random

DENSE = ["llama", "qwen2", "qwen3", "mistral", "smollm3", "phi3",
         "phi3-longrope", "phi3-partial", "olmo", "olmo2", "gemma", "gemma2",
         "gemma3", "gpt2"]
EXPERTS = ["mixtral", "qwen2-moe", "qwen3-moe", "gpt-oss", "deepseek-v2",
           "deepseek-v3", "deepseek-mtp"]
ENCODERS = {"llava": ["vision"], "llava-full": ["vision"],
            "llava-layers": ["vision"], "qwen2-vl": ["vision"],
            "qwen2.5-vl": ["vision"], "qwen2-audio": ["audio"],
            "qwen2.5-omni": ["vision", "audio"]}
REWARDS = ["llama", "mistral", "qwen2", "qwen3", "smollm3", "qwen2-moe",
           "qwen3-moe"]
CAPACITY = 64  # 48 if three ranks divide a sequence
WORDS = 67


def family_of(config):
    return config.get("text_config", config)


def vocabulary(family):
    return 31 if family in ENCODERS else WORDS


def repeat(items, n):
    return (items * n)[:n]


def set_layers(c, n):
    c["n_layer" if "n_layer" in c else "num_hidden_layers"] = n
    for name in ("layer_types", "no_rope_layers"):
        if name in c:
            c[name] = repeat(c[name], n)


def set_heads(c, heads, kv):
    """Gives a dense model or one with experts heads that many ranks divide."""
    if "n_embd" in c:
        c.update(n_head=heads, n_embd=4 * heads, n_inner=24, n_positions=96)
        return
    deepseek = "kv_lora_rank" in c
    c.update(num_attention_heads=heads, intermediate_size=24,
             num_key_value_heads=heads if deepseek else kv)
    if not deepseek:
        c["hidden_size"] = 4 * heads
        if c.get("head_dim"):
            c["head_dim"] = 4
    rope = c.get("rope_parameters", {})
    pairs = 2
    if rope.get("partial_rotary_factor", 1) < 1:
        rope["partial_rotary_factor"], pairs = 0.5, 1
    for name in ("short_factor", "long_factor"):
        if name in rope:
            rope[name] = rope[name][:pairs]
    if rope.get("rope_type") == "longrope":
        rope["original_max_position_embeddings"] = 96
        c["original_max_position_embeddings"] = 96
    for name, size in (("moe_intermediate_size", 12), ("num_experts", 8),
                       ("shared_expert_intermediate_size", 24),
                       ("num_local_experts", 8)):
        if name in c:
            c[name] = size


def set_encoder_heads(c, text, heads):
    """The same for a model with encoders, whose widths stay."""
    if heads > 4:
        text.update(num_attention_heads=4, num_key_value_heads=2)
        text["head_dim"] = text["hidden_size"] // 4
        if "mrope_section" in text["rope_parameters"]:
            text["rope_parameters"]["mrope_section"] = [1, 1, 1]
        if "audio_config" in c:
            c["audio_config"]["encoder_attention_heads"] = 4
        vision = c.get("vision_config", {})
        vision["num_heads" if "num_heads" in vision
               else "num_attention_heads"] = 4


def make_config(golden, p):
    """Returns the configuration of the model of point p, from the folder of
    golden models."""
    folder = os.path.join(golden, p["family"])
    if not os.path.exists(os.path.join(folder, "config.json")):
        folder = os.path.join(folder, "model")
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    text = family_of(c)
    set_layers(text, p["layers"])
    if text is c:
        set_heads(c, p["heads"], p["kv"])
        c["vocab_size"] = WORDS
        c["pad_token_id"] = None
    else:
        set_encoder_heads(c, text, p["heads"])
        if p["text"]:
            text["model_type"] = p["text"]
            text["head_dim"] = text["hidden_size"] // text["num_attention_heads"]
            if p["text"] == "mistral":
                text["sliding_window"] = 7
    text["initializer_range"] = c["initializer_range"] = 0.1
    if not p["mtp"]:
        c.pop("num_nextn_predict_layers", None)
    c["tie_word_embeddings"] = text["tie_word_embeddings"] = p["tied"]
    if p["objective"] == "reward":
        c["architectures"] = [c["architectures"][0].replace(
            "CausalLM", "SequenceClassification")]
        c["id2label"] = {"0": "LABEL_0"}
        c["tie_word_embeddings"] = False
    return c


def make_generator(golden, p):
    q = dict(p, family=p["gen"], layers=p["gen_layers"], tied=False, mtp=False,
             objective="sft", text=None)
    return make_config(golden, q)


class Lines:
    """Draws the lines of a point's data."""

    def __init__(self, p, seed):
        self.p, self.rng = p, random.Random(seed)
        self.capacity = p["capacity"]
        self.top = vocabulary(p["family"])
        self.order = list(range(2, self.top))
        self.rng.shuffle(self.order)

    def numbers(self, n):
        return [round(self.rng.uniform(-1, 1), 3) for _ in range(n)]

    def words(self, n, k=0):
        """Words of document k. No two documents begin alike, and none begins
        with a word twice: equal scores would leave a choice to rounding."""
        ids = [self.rng.randrange(2, self.top) for _ in range(n)]
        if ids:
            ids[0] = self.order[k % len(self.order)]
        if n > 1 and ids[0] == ids[1]:
            ids[1] = 2 + (ids[1] - 1) % (self.top - 2)
        return ids

    def length(self):
        shape, rng = self.p["shape"], self.rng
        if self.p["long"] and rng.random() < 0.2:
            return rng.randint(60, 150)
        if shape == "ones":
            return 1 if rng.random() < 0.6 else rng.randint(1, 12)
        if shape == "whole":
            return self.capacity if rng.random() < 0.5 else rng.randint(1, 30)
        if shape == "even":
            return 12
        return 1 + int(rng.random() * rng.random() * 40)

    def mask(self, n):
        if self.p["mask"] == "whole" and self.rng.random() < 0.4:
            return [0] * n
        return [int(self.rng.random() < 0.8) for _ in range(n)]

    def document(self, k):
        line = {"input_ids": self.words(self.length(), k)}
        if self.p["mask"]:
            line["loss_mask"] = self.mask(len(line["input_ids"]))
        return line

    def rollout(self, k, columns):
        n = self.rng.randint(1, 9)
        line = {"prompt": self.words(3, k), "response": self.words(n)}
        for name in columns:
            line[name] = [x if name == "advantages" else -4 + x
                          for x in self.numbers(n)]
        return line

    def pair(self, k):
        columns = ["ref_logprobs"] if self.p["objective"] == "dpo" else []
        sides = [self.rollout(k, columns) for _ in range(2)]
        for side in sides:
            side["input_ids"] = side.pop("response")
            prompt = side.pop("prompt")
        return {"prompt": prompt, "chosen": sides[0], "rejected": sides[1]}

    def picture(self):
        """An image of LLaVA: its placeholders and its pixels."""
        full = self.p["family"] == "llava-full"
        return 4 + full, [[self.numbers(8) for _ in range(8)] for _ in range(3)]

    def grid(self):
        down, across = self.rng.randint(1, 3), self.rng.randint(1, 2)
        return down * across, {
            "pixels": [self.numbers(24) for _ in range(4 * down * across)],
            "grid": [1, 2 * down, 2 * across]}

    def clip(self):
        frames = self.rng.randint(3, 16)
        return (frames + 1) // 2 // 2, {
            "features": [self.numbers(frames + 3) for _ in range(6)],
            "frames": frames}

    def items(self, k):
        """A document with images, audio or both, or without any."""
        of = ENCODERS[self.p["family"]]
        ids, found = self.words(self.rng.randint(1, 6), k), {}
        for name in of:
            n = {"none": 0, "all": 1, "some": self.rng.choice([0, 0, 1, 2]),
                 "many": self.rng.randint(1, 2)}[self.p["items"]]
            for _ in range(n):
                make = self.clip if name == "audio" else (
                    self.picture if "llava" in self.p["family"] else self.grid)
                places, item = make()
                token = 32 if name == "audio" and len(of) > 1 else 31
                ids += [token] * places + self.words(self.rng.randint(1, 5))
                found.setdefault("audio" if name == "audio" else "images",
                                 []).append(item)
        line = {"input_ids": ids, **found}
        if self.p["mask"]:
            line["loss_mask"] = self.mask(len(ids))
        return line

    def line(self, k):
        p = self.p
        if p["objective"] in ("dpo", "reward"):
            return self.pair(k)
        if p["objective"] == "grpo":
            line = self.rollout(k, ["advantages", "prev_logprobs", "logprobs",
                                    "ref_logprobs"])
            return dict(line, group=k // 2)
        if p["family"] in ENCODERS:
            line = self.items(k)
        else:
            line = self.document(k)
        n = len(line["input_ids"])
        if p["gen"] and (k == 0 or self.rng.random() < 0.9):
            line["generator_ids"] = [self.rng.randrange(2, WORDS)
                                     for _ in range(n)]
            if self.rng.random() < 0.5:
                line["generator_mask"] = self.mask(n)
        return line


def write_lines(path, p, seed, count):
    lines = Lines(p, seed)
    with open(path, "w") as f:
        for k in range(count):
            f.write(json.dumps(lines.line(k)) + "\n")
