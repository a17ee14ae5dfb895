/* SPDX-License-Identifier: MIT */
/* outline_towers - the encoders of images that ppsplit plans and pprun does not
 * train, each with its projector. outline.h has the form of the words.
 *
 * Sizes: H hidden, L layers, nh heads, hd width of a head, I width of an MLP, C
 * channels and P pixels each way of a patch, input values of a patch, merge
 * patches of a feature and side their number each way, M values of a feature,
 * out width of a feature of the projector, run layers that run; fixed patches
 * of each image, or 0 if images have any size; cls: there is a class token. In
 * Qwen3-VL the projector also reads the outputs of some layers (deep). */
#include "manifest/outline.h"

/* Sizes of all; P, side and what follows from them are each tower's. */
#define SIZES                                                   \
    "hd=H/nh input=C*P*P M=merge*H merge=side*side side=2 "     \
    "out=text_hidden run=L fixed=0 cls=0 deep=0 "               \
    "image=at(image_size) state=whole.vision_feature_layer|-1 " \
    "C=num_channels|3 square=floor(image/P)*floor(image/P) pooled=0 "
#define QKV(at, bias)                                        \
    at "q_proj(H,H;" bias ") " at "k_proj(H,H;" bias ") " at \
       "v_proj(H,H;" bias ") "
#define CLIP_MLP "mlp.fc1(I,H;1) mlp.fc2(H,I;1)"
#define LAYER_NORMS "norm1(H;1) norm2(H;1) "
#define GATED_MLP(at) \
    at "gate_proj(I,H) " at "up_proj(I,H) " at "down_proj(H,I)"

/* Qwen Team, "Qwen3-VL Technical Report", 2025; and the tower of Qwen3.5. */
#define QWEN                                                         \
    "H=hidden_size|1152 L=depth|27 nh=num_heads|16 "                 \
    "I=intermediate_size|4304 C=in_channels|3 P=patch_size|16 "      \
    "input=C*(temporal_patch_size|2)*P*P side=spatial_merge_size|2 " \
    "rows=num_position_embeddings|2304 out=out_hidden_size|3584 " SIZES
#define QWEN_NAMES                                             \
    {                                                          \
        "visual.patch_embed", "visual.blocks", "visual.merger" \
    }
#define QWEN_PATCHES "patch_embed.proj(H,input;1) pos_embed!(rows,H)"
#define QWEN_LAYER                                    \
    LAYER_NORMS "attn.qkv(3*H,H;1) attn.proj(H,H;1) " \
                "mlp.linear_fc1(I,H;1) mlp.linear_fc2(H,I;1)"
#define QWEN_MERGER \
    "norm(H;1) merger.linear_fc1(M,M;1) merger.linear_fc2(out,M;1) "
#define QWEN3_VL(type, architecture)                                       \
    {                                                                      \
        type, architecture, NULL,                                          \
            "listed=has(deepstack_visual_indexes) "                        \
            "deep=listed?in(deepstack_visual_indexes):l==8||l==16||l==24 " \
            "n=listed?count(deepstack_visual_indexes):3 " QWEN,            \
            QWEN_NAMES, QWEN_PATCHES, QWEN_LAYER,                          \
            QWEN_MERGER "deepstack.norm(n*M;1)@n "                         \
                        "deepstack.linear_fc1(n*M,M;1)@n "                 \
                        "deepstack.linear_fc2(n*out,M;1)@n"                \
    }
#define QWEN3_5(type, architecture)                                           \
    {                                                                         \
        type, architecture, NULL, QWEN, QWEN_NAMES, QWEN_PATCHES, QWEN_LAYER, \
            QWEN_MERGER                                                       \
    }

/* GLM-V Team, "GLM-4.5V and GLM-4.1V-Thinking", 2025. */
#define GLM4V(type, architecture)                                            \
    {                                                                        \
        type, architecture, NULL,                                            \
            "H=hidden_size|1536 L=depth|24 nh=num_heads|12 "                 \
            "I=out_hidden_size|4096 C=in_channels|3 P=patch_size|14 "        \
            "input=C*(temporal_patch_size|2)*P*P side=spatial_merge_size|2 " \
            "out=out_hidden_size|4096 image=image_size|336 "                 \
            "wide=intermediate_size|13696 " SIZES,                           \
            QWEN_NAMES,                                                      \
            "patch_embed.proj(H,input;1) post_conv_layernorm(H) "            \
            "embeddings.position_embedding!(square,H)",                      \
            "norm1(H) norm2(H) attn.qkv(3*H,H;attention_bias) "              \
            "attn.proj(H,H) " GATED_MLP("mlp."),                             \
            "post_layernorm(H) downsample(out,M;1) merger.proj(out,out) "    \
            "merger.post_projection_norm(out;1) merger.gate_proj(wide,out) " \
            "merger.up_proj(wide,out) merger.down_proj(out,wide)"            \
    }

/* clang-format off */
const struct pp_outline_tower pp_outline_towers[] = {
    QWEN3_VL("qwen3_vl", "Qwen3VLForConditionalGeneration"),
    QWEN3_VL("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"),
    QWEN3_5("qwen3_5", "Qwen3_5ForConditionalGeneration"),
    QWEN3_5("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
    GLM4V("glm4v", "Glm4vForConditionalGeneration"),
    GLM4V("glm4v_moe", "Glm4vMoeForConditionalGeneration"),
    /* Meta, "The Llama 4 herd", 2025. */
    {"llama4", "Llama4ForConditionalGeneration", NULL,
     "H=hidden_size|768 L=num_hidden_layers|34 nh=num_attention_heads|16 "
     "I=intermediate_size|5632 P=patch_size|14 image=image_size|448 "
     "fixed=square cls=1 side=floor(1/(pixel_shuffle_ratio|0.5)) "
     "in1=projector_input_dim|4096 out1=projector_output_dim|4096 "
     "out2=vision_output_dim|7680 " SIZES,
     {"vision_model.patch_embedding", "vision_model.model.layers",
      "multi_modal_projector"},
     "class_embedding!(H) positional_embedding_vlm!(fixed+1,H) "
     "patch_embedding.linear(H,input) layernorm_pre(H;1)",
     "input_layernorm(H;1) post_attention_layernorm(H;1) "
     QKV("self_attn.", "1") "self_attn.o_proj(H,H;1) " CLIP_MLP,
     "layernorm_post(H;1) vision_adapter.mlp.fc1(in1,I) "
     "vision_adapter.mlp.fc2(out1,out1) linear_1(out,out2)"},
    /* Zhai et al., "Sigmoid Loss for Language Image Pre-Training", 2023, as
     * Gemma Team, "Gemma 3 Technical Report", 2025, uses it. Nobody reads the
     * output of its head. */
    {"gemma3", "Gemma3ForConditionalGeneration", "siglip_vision_model",
     "H=hidden_size|768 L=num_hidden_layers|12 nh=num_attention_heads|12 "
     "I=intermediate_size|3072 P=patch_size|16 image=image_size|224 "
     "fixed=square pooled=vision_use_head|1 "
     "side=floor(floor(image/P)/floor(sqrt(whole.mm_tokens_per_image|256))) "
     "M=H " SIZES,
     {"vision_tower.vision_model.embeddings",
      "vision_tower.vision_model.encoder.layers", "multi_modal_projector"},
     "patch_embedding(H,input;1) position_embedding!(fixed,H)",
     "layer_norm1(H;1) layer_norm2(H;1) " QKV("self_attn.", "1")
     "self_attn.out_proj(H,H;1) " CLIP_MLP,
     "post_layernorm(H;1) mm_input_projection(out,H) mm_soft_emb_norm(H) "
     "head.matrices!(4*H+2*I,H)@pooled head.vectors!(8*H+I)@pooled"},
    /* Google DeepMind, "Gemma 4", 2026. */
    {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_vision",
     "H=hidden_size|768 L=num_hidden_layers|16 nh=num_attention_heads|12 "
     "nkv=num_key_value_heads|12 hd=head_dim|64 I=intermediate_size|3072 "
     "P=patch_size|16 side=pooling_kernel_size|3 M=H "
     "rows=2*(position_embedding_size|10240) " SIZES,
     {"vision_tower.patch_embedder", "vision_tower.encoder.layers",
      "embed_vision"},
     "position_embedding_table!(rows,H) input_proj(H,input)",
     "norms pre_feedforward_layernorm(H) post_feedforward_layernorm(H) "
     "attention qk_norm " GATED_MLP("mlp."),
     "embedding_projection(out,H)"},
    /* OpenGVLab, "InternVL3", 2025. */
    {"internvl", "InternVLForConditionalGeneration", "internvl_vision",
     "H=hidden_size|1024 L=num_hidden_layers|24 nh=num_attention_heads|16 "
     "I=intermediate_size|4096 P=at(patch_size)|14 "
     "image=at(image_size)|448 fixed=square cls=1 "
     "run=state<0?L+1+state:state rms=is(norm_type,rms_norm) "
     "side=floor(1/(whole.downsample_ratio|0.5)) "
     "mean=use_mean_pooling|1 table=use_absolute_position_embeddings|1 " SIZES,
     {"vision_tower.embeddings", "vision_tower.encoder.layer",
      "multi_modal_projector"},
     "cls_token!(H) mask_token!(H)@use_mask_token "
     "position_embeddings!(fixed+1,H)@table "
     "patch_embeddings.projection(H,input;1)",
     "lambda_1!(H) lambda_2!(H) layernorm_before(H;!rms) "
     "layernorm_after(H;!rms) attention.q_norm(H)@use_qk_norm "
     "attention.k_norm(H)@use_qk_norm " QKV("attention.", "attention_bias")
     "attention.projection_layer(H,H;1) " CLIP_MLP,
     "layernorm(H;1)@!mean layer_norm(M;1) linear_1(out,M;1) "
     "linear_2(out,out;1)"},
    /* Kimi Team, "Kimi K2.5", 2026: MoonViT. */
    {"kimi_k25", "Kimi_K25ForConditionalGeneration", NULL,
     "H=hidden_size|vt_hidden_size|1152 "
     "L=num_hidden_layers|vt_num_hidden_layers|27 "
     "nh=num_attention_heads|vt_num_attention_heads|16 "
     "I=intermediate_size|vt_intermediate_size|4304 P=patch_size|14 "
     "side=at(merge_kernel_size)|2 high=pos_emb_height|"
     "init_pos_emb_height|64 wide=pos_emb_width|init_pos_emb_width|64 "
     "ph=whole.projection_hidden_size|H " SIZES,
     {"vision_tower.patch_embed", "vision_tower.encoder.blocks",
      "mm_projector"},
     "proj(H,input;1) pos_emb!(high*wide,H)",
     LAYER_NORMS QKV("attn.", "1") "attn.proj(H,H;1) " CLIP_MLP,
     "final_layernorm(H;1) pre_norm(ph;1) in_proj(merge*ph,merge*ph;1) "
     "out_proj(out,merge*ph;1)"},
    /* Agrawal et al., "Pixtral 12B", 2024. */
    {"mistral3", "Mistral3ForConditionalGeneration", "pixtral",
     "H=hidden_size|1024 L=num_hidden_layers|24 nh=num_attention_heads|16 "
     "I=intermediate_size|4096 P=patch_size|16 "
     "run=state<0?L+1+state:state side=whole.spatial_merge_size|2 "
     "bias=whole.multimodal_projector_bias|0 " SIZES,
     {"vision_tower.patch_conv", "vision_tower.transformer.layers",
      "multi_modal_projector"},
     "patch_conv(H,input) ln_pre(H)",
     "attention_norm(H) ffn_norm(H) " QKV("attention.", "0")
     "attention.o_proj(H,H) " GATED_MLP("feed_forward."),
     "norm(H) patch_merger.merging_layer(H,M) linear_1(out,H;bias) "
     "linear_2(out,out;bias)"},
    {.model_type = NULL},
};
/* clang-format on */
