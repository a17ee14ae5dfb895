# SPDX-License-Identifier: MIT
"""draw_families - draws models of the families that a table describes, for
random_models."""
from draw_experts import draw_sizes


def heads(rng):
    return dict(head_dim=4 * rng.randint(2, 6))


def windows(rng, layers):
    kinds = ["sliding_attention", "full_attention"]
    return dict(sliding_window=rng.choice([1, 3, 20, 65]),
                layer_types=[rng.choice(kinds) for _ in range(layers)])


def experts(rng, count="num_experts", top="num_experts_per_tok"):
    n = rng.randint(2, 10)
    return {count: n, top: rng.randint(1, min(4, n)),
            "moe_intermediate_size": rng.randint(2, 20)}


def routed(rng, layers):
    groups, each = rng.choice([1, 2, 3]), rng.randint(2, 4)
    kept = rng.randint(1, groups)
    return dict(heads(rng), moe_intermediate_size=rng.randint(2, 20),
                n_routed_experts=groups * each, n_group=groups,
                topk_group=kept, n_shared_experts=rng.randint(1, 2),
                num_experts_per_tok=rng.randint(1, min(4, kept * each)),
                first_k_dense_replace=rng.randint(0, layers),
                routed_scaling_factor=rng.choice([1.0, 2.5]),
                norm_topk_prob=rng.random() < 0.7, num_mtp_layers=0)


def latent(rng):
    return dict(q_lora_rank=rng.choice([None, rng.randint(4, 16)]),
                kv_lora_rank=rng.randint(4, 16),
                qk_nope_head_dim=rng.randint(1, 12),
                qk_rope_head_dim=2 * rng.randint(1, 6),
                v_head_dim=rng.randint(1, 16))


def linear(rng, layers):
    kinds = ["linear_attention", "full_attention"]
    keys = rng.choice([1, 2])
    return dict(heads(rng), linear_num_key_heads=keys,
                linear_num_value_heads=keys * rng.choice([1, 2, 3]),
                linear_key_head_dim=rng.randint(4, 12),
                linear_value_head_dim=rng.randint(4, 12),
                linear_conv_kernel_dim=rng.choice([2, 4]),
                # The norm of a few outputs near 0 is steep, too.
                rms_norm_eps=1e-2,
                layer_types=[rng.choice(kinds) for _ in range(layers)])


def multipliers(rng):
    return dict(embedding_multiplier=rng.choice([1.0, 12.0]),
                residual_multiplier=rng.choice([0.22, 1.0, 1.5]),
                attention_multiplier=rng.choice([0.1, 0.25]),
                logits_scaling=rng.choice([0.5, 1.0, 8.0]),
                attention_bias=rng.random() < 0.5)


def yes(rng):
    return rng.random() < 0.5


# Keys beside those of draw_sizes; n: layers.
FAMILIES = {
    "olmo3": lambda r, n: dict(windows(r, n), attention_bias=yes(r)),
    "exaone4": lambda r, n: dict(heads(r), **(
        windows(r, n) if yes(r) else dict(sliding_window=None,
                                          layer_types=["full_attention"] * n))),
    "seed_oss": lambda r, n: dict(heads(r), attention_bias=yes(r),
                                  attention_out_bias=yes(r), mlp_bias=yes(r),
                                  residual_dropout=0.0),
    "ministral": lambda r, n: dict(heads(r), **windows(r, n)),
    "cwm": lambda r, n: dict(heads(r), **windows(r, n)),
    "glm": lambda r, n: dict(heads(r), attention_bias=yes(r)),
    "glm4": lambda r, n: dict(heads(r), attention_bias=yes(r)),
    "ernie4_5": lambda r, n: heads(r),
    "granite": lambda r, n: dict(multipliers(r), mlp_bias=yes(r)),
    "arcee": lambda r, n: dict(heads(r), hidden_act="relu2", mlp_bias=yes(r),
                               attention_bias=yes(r)),
    "apertus": lambda r, n: dict(hidden_act="xielu", attention_bias=yes(r)),
    "starcoder2": lambda r, n: dict(
        hidden_act="gelu_pytorch_tanh", use_bias=yes(r),
        sliding_window=r.choice([None, 5, 40])),
    "cohere": lambda r, n: dict(logit_scale=r.choice([0.0625, 1.0]),
                                attention_bias=yes(r)),
    "cohere2": lambda r, n: dict(windows(r, n), attention_bias=yes(r)),
    "hunyuan_v1_dense": lambda r, n: dict(heads(r), attention_bias=yes(r)),
    "ministral3": lambda r, n: dict(heads(r), rope_parameters=dict(
        rope_type="yarn", rope_theta=1e4, factor=4.0, mscale=1.0,
        mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0,
        original_max_position_embeddings=r.choice([16, 64]),
        llama_4_scaling_beta=r.choice([0.1, 0.5]))),
    "qwen3_5_text": linear,
    "qwen3_5_moe_text": lambda r, n: dict(
        linear(r, n), **experts(r), shared_expert_intermediate_size=6),
    "qwen3_next": lambda r, n: dict(
        linear(r, n), **experts(r), shared_expert_intermediate_size=6,
        decoder_sparse_step=r.choice([1, 2]), norm_topk_prob=yes(r),
        mlp_only_layers=[i for i in range(n) if r.random() < 0.2]),
    "olmoe": lambda r, n: dict(experts(r), norm_topk_prob=yes(r)),
    "flex_olmo": lambda r, n: dict(experts(r), norm_topk_prob=yes(r)),
    "dots1": lambda r, n: dict(routed(r, n), **windows(r, n)),
    "exaone_moe": lambda r, n: dict(heads(r), **experts(r), **windows(r, n),
                                    num_shared_experts=1, n_group=1,
                                    topk_group=1),
    "solar_open": routed,
    "hy_v3": lambda r, n: dict(heads(r), **experts(r), num_shared_experts=1),
    "glm4_moe": lambda r, n: dict(routed(r, n), use_qk_norm=yes(r),
                                  attention_bias=yes(r)),
    "glm4_moe_lite": lambda r, n: dict(
        {k: v for k, v in routed(r, n).items()
         if k not in ("head_dim", "first_k_dense_replace")}, **latent(r),
        mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)],
        rope_interleave=yes(r), attention_bias=yes(r)),
    "cohere2_moe": lambda r, n: dict(
        heads(r), **experts(r), **windows(r, n), rms_norm_eps=None,
        num_shared_experts=r.randint(0, 2),
        shared_expert_combination_strategy=r.choice(["sum", "average"]),
        expert_selection_fn=r.choice(["softmax", "sigmoid"]),
        norm_topk_prob=yes(r), logit_scale=r.choice([0.0625, 1.0]),
        prefix_dense_intermediate_size=r.choice([None, 7]),
        prefix_dense_sliding_window_pattern=r.choice([1, 2]),
        mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)],
        attention_bias=yes(r)),
    "llama4_text": lambda r, n: dict(
        heads(r), **experts(r, "num_local_experts"), intermediate_size_mlp=9,
        moe_layers=[i for i in range(n) if yes(r)], use_qk_norm=yes(r),
        no_rope_layers=[r.randint(0, 1) for _ in range(n)],
        attention_chunk_size=r.choice([1, 3, 20, 65]), attn_scale=0.4,
        attn_temperature_tuning=yes(r), floor_scale=r.choice([1, 5, 40]),
        layer_types=[r.choice(["chunked_attention", "full_attention"])
                     for _ in range(n)]),
    "mimo_v2_flash": lambda r, n: dict(
        {k: v for k, v in routed(r, n).items()
         if k not in ("n_shared_experts", "first_k_dense_replace")},
        **windows(r, n), v_head_dim=r.randint(1, 20), attention_bias=yes(r),
        attention_value_scale=r.choice([None, 0.7]),
        mlp_layer_types=[r.choice(["dense", "sparse"]) for _ in range(n)]),
    "minimax_m2": lambda r, n: dict(experts(r, "num_local_experts"),
                                    head_dim=16, rotary_dim=8),
    "ernie4_5_moe": lambda r, n: dict(
        experts(r, "moe_num_experts", "moe_k"), moe_layer_interval=1,
        moe_layer_start_index=r.randint(0, n), moe_layer_end_index=n - 1,
        moe_num_shared_experts=r.randint(0, 2)),
    "hunyuan_v1_moe": lambda r, n: dict(heads(r),
                                        **experts(r, top="moe_topk")),
    "granitemoe": lambda r, n: dict(multipliers(r),
                                    **experts(r, "num_local_experts")),
    "granitemoeshared": lambda r, n: dict(
        multipliers(r), **experts(r, "num_local_experts"),
        shared_intermediate_size=r.randint(2, 20)),
    "afmoe": lambda r, n: dict(heads(r), **experts(r), **windows(r, n),
                               num_shared_experts=1, mup_enabled=yes(r),
                               num_dense_layers=r.randint(0, n)),
}


def draw_family(rng, rope, classes):
    kind = rng.choice(sorted(FAMILIES))
    c = draw_sizes(rng, "")
    c.update(model_type=kind, architectures=[classes[kind]], pad_token_id=None,
             norm_epsilon=1e-5, layer_norm_eps=1e-5, router_aux_loss_coef=0.0)
    # A norm of all heads over a few elements is so steep that fp32 diverges.
    c["hidden_size"] = max(c["hidden_size"], 4 * c["num_attention_heads"])
    c["hidden_size"] -= c["hidden_size"] % (2 * c["num_attention_heads"])
    kinds = ["sliding_attention", "full_attention"]
    c["rope_parameters"] = {k: rope(rng, "Llama") for k in kinds} \
        if kind in ("olmo3", "mimo_v2_flash") else rope(rng, "Llama")
    c.update(FAMILIES[kind](rng, c["num_hidden_layers"]))
    if kind == "glm4_moe_lite":
        c["num_key_value_heads"] = c["num_attention_heads"]
    if kind == "mimo_v2_flash":
        for of in c["rope_parameters"].values():
            of["partial_rotary_factor"] = 0.7
        c["num_attention_heads"] = 2 * c["num_key_value_heads"]
    if kind in ("glm", "glm4", "glm4_moe") or "linear_num_key_heads" in c:
        c["rope_parameters"]["partial_rotary_factor"] = rng.choice([0.5, 1.0])
    return c
