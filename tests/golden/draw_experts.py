# SPDX-License-Identifier: MIT
"""draw_experts - draws models with experts for random_models."""


def draw_sizes(rng, family):
    kv = rng.choice([1, 2, 3])
    heads = kv * rng.choice([1, 2, 3])
    layers = rng.randint(1, 5)
    return dict(architectures=[family + "ForCausalLM"],
                vocab_size=rng.randint(50, 1000),
                hidden_size=heads * 2 * rng.randint(1, max(1, 48 // heads)),
                intermediate_size=rng.randint(5, 60),
                num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv, hidden_act="silu",
                max_position_embeddings=rng.choice([300, 512, 2048]),
                rms_norm_eps=rng.choice([1e-5, 1e-6]),
                tie_word_embeddings=rng.random() < 0.5, attention_dropout=0.0,
                bos_token_id=0, eos_token_id=1, use_cache=False)


def draw_qwen(rng, family, c):
    experts = rng.randint(2, 12)
    c.update(model_type=family.lower().replace("moe", "_moe"),
             num_experts=experts,
             num_experts_per_tok=rng.randint(1, min(4, experts)),
             moe_intermediate_size=rng.randint(2, 20),
             norm_topk_prob=rng.random() < 0.5,
             decoder_sparse_step=rng.choice([1, 1, 2]),
             mlp_only_layers=[0] if rng.random() < 0.3 else [],
             router_aux_loss_coef=0.0)
    if family == "Qwen2Moe":
        c.update(shared_expert_intermediate_size=rng.randint(2, 24),
                 qkv_bias=rng.random() < 0.7)
    else:
        c.update(head_dim=2 * rng.randint(4, 12),
                 attention_bias=rng.random() < 0.5)
    if rng.random() < 0.4:
        c.update(use_sliding_window=True, sliding_window=rng.choice([3, 20]),
                 max_window_layers=rng.randint(0, c["num_hidden_layers"]))


def draw_deepseek(rng, family, c):
    groups = rng.choice([1, 2, 3])
    each = rng.randint(2, 4)
    kept = rng.randint(1, groups)
    rotary = 2 * rng.randint(1, 5)
    v2 = family == "DeepseekV2"  # transformers needs even heads there
    c.update(model_type="deepseek_v" + family[-1],
             num_key_value_heads=c["num_attention_heads"],
             q_lora_rank=rng.choice([None, rng.randint(3, 20)]),
             kv_lora_rank=rng.randint(2, 20) * (1 + v2),
             qk_nope_head_dim=rng.randint(1, 10) * (1 + v2),
             qk_rope_head_dim=rotary,
             head_dim=rotary, v_head_dim=rng.randint(1, 14),
             attention_bias=rng.random() < 0.5,
             moe_intermediate_size=rng.randint(2, 20),
             n_routed_experts=groups * each,
             num_experts_per_tok=rng.randint(1, min(4, kept * each)),
             n_shared_experts=rng.randint(1, 2),
             first_k_dense_replace=rng.randint(0, c["num_hidden_layers"]),
             routed_scaling_factor=rng.choice([1.0, 2.5]))
    if family == "DeepseekV3":
        c.update(n_group=groups, topk_group=kept, num_mtp_layers=0,
                 norm_topk_prob=rng.random() < 0.7,
                 rope_interleave=rng.random() < 0.7)
    elif groups > 1:
        c.update(topk_method="group_limited_greedy", n_group=groups,
                 topk_group=kept)
    else:
        c.update(topk_method="greedy", n_group=None, topk_group=None)


def draw_oss(rng, c):
    experts = rng.randint(2, 10)
    kinds = ["sliding_attention", "full_attention"]
    c.update(model_type="gpt_oss", head_dim=2 * rng.randint(1, 12),
             num_local_experts=experts,
             num_experts_per_tok=rng.randint(1, min(4, experts)),
             swiglu_limit=rng.choice([0.5, 2.0, 7.0]),
             swiglu_alpha=rng.choice([1.0, 1.702]),
             sliding_window=rng.choice([1, 3, 20, 128]), pad_token_id=None,
             layer_types=[rng.choice(kinds)
                          for _ in range(c["num_hidden_layers"])])


def draw_experts(rng, rope):
    family = rng.choice(["Mixtral", "Qwen2Moe", "Qwen3Moe", "DeepseekV2",
                         "DeepseekV3", "GptOss"])
    c = draw_sizes(rng, family)
    if family == "Mixtral":
        experts = rng.randint(2, 10)
        c.update(model_type="mixtral", num_local_experts=experts,
                 num_experts_per_tok=rng.randint(1, min(4, experts)),
                 sliding_window=None,  # transformers needs head_dim
                 head_dim=c["hidden_size"] // c["num_attention_heads"])
    elif family.startswith("Qwen"):
        draw_qwen(rng, family, c)
    elif family == "GptOss":
        draw_oss(rng, c)
    else:
        draw_deepseek(rng, family, c)
    c["rope_parameters"] = r = rope(rng, family)
    width = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    if r["rope_type"] == "dynamic" and width == 2:
        r["rope_type"] = "linear"  # transformers divides by zero
    return c
