# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# bench_models - models with encoders and data for them, for scripts/bench.

# Makes a LLaVA in `seeing`, packs 16 sequences of 64 words and 2 images of 64
# patches into `even`, and lists in first.json the units of 2 stages of which the
# first has the encoder and half of the layers.
seeing() {
    mkdir -p seeing
    jq -n '{architectures: ["LlavaForConditionalGeneration"], model_type: "llava",
        image_token_index: 31, projector_hidden_act: "gelu",
        vision_feature_layer: -2, vision_feature_select_strategy: "default",
        vision_config: {model_type: "clip_vision_model", hidden_size: 256,
            intermediate_size: 1024, num_hidden_layers: 5,
            num_attention_heads: 4, image_size: 64, patch_size: 8,
            hidden_act: "quick_gelu", layer_norm_eps: 1e-5},
        text_config: {model_type: "llama", vocab_size: 1024, hidden_size: 256,
            num_hidden_layers: 4, num_attention_heads: 4,
            num_key_value_heads: 2, intermediate_size: 688, hidden_act: "silu",
            max_position_embeddings: 4096, rms_norm_eps: 1e-5,
            rope_theta: 10000.0}}' >seeing/config.json
    awk 'function image(  c, y, x, all) {
        for (c = 0; c < 3; c++) {
            all = all (c ? ",[" : "[")
            for (y = 0; y < 64; y++) {
                all = all (y ? ",[" : "[")
                for (x = 0; x < 64; x++)
                    all = all (x ? "," : "") sprintf("%.1f", rand() * 2 - 1)
                all = all "]"
            }
            all = all "]"
        }
        return "[" all "]"
    }
    BEGIN {
        srand(1)
        for (i = 0; i < 16; i++) {
            printf "{\"input_ids\":[1"
            for (k = 0; k < 128; k++)
                printf ",31"
            for (k = 0; k < 63; k++)
                printf ",%d", 32 + rand() * 900
            print "],\"images\":[" image() "," image() "]}"
        }
    }' | pppack -q -l 192 --image-token 31 --patch 8 -o even -
    ppsplit -q -p 1 seeing | jq '.stages[0].units
        | index("model.layers.2") as $n | [.[:$n], .[$n:]]' >first.json
}

# Makes a Qwen2.5-Omni in `hearing`, packs 16 sequences of 48 words, an image of 256
# patches and 2 clips of 32 rows into `even`, and lists in first.json the units of 2
# stages of which the first has both encoders and half of the layers.
hearing() {
    mkdir -p hearing
    jq -n '{architectures: ["Qwen2_5OmniThinkerForConditionalGeneration"],
        model_type: "qwen2_5_omni_thinker", image_token_index: 31,
        video_token_index: 30, audio_token_index: 32, vision_start_token_id: 33,
        audio_start_token_id: 34, audio_end_token_id: 35,
        position_id_per_seconds: 25, seconds_per_chunk: 2,
        vision_config: {model_type: "qwen2_5_omni_vision_encoder", depth: 4,
            fullatt_block_indexes: [3], hidden_act: "silu", hidden_size: 256,
            in_channels: 3, intermediate_size: 512, num_heads: 4,
            out_hidden_size: 256, patch_size: 4, spatial_merge_size: 2,
            temporal_patch_size: 2, window_size: 32},
        audio_config: {model_type: "qwen2_5_omni_audio_encoder", d_model: 256,
            activation_function: "gelu", encoder_attention_heads: 4,
            encoder_ffn_dim: 1024, encoder_layers: 4, num_mel_bins: 16,
            max_source_positions: 64, n_window: 32, output_dim: 256},
        text_config: {model_type: "qwen2_5_omni_text", vocab_size: 1024,
            hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4,
            num_key_value_heads: 2, intermediate_size: 688, hidden_act: "silu",
            max_position_embeddings: 4096, rms_norm_eps: 1e-6,
            tie_word_embeddings: false, rope_theta: 10000.0,
            rope_scaling: {type: "mrope", mrope_section: [8, 12, 12]}},
        tie_word_embeddings: false}' >hearing/config.json
    awk 'function list(n,  k, all) {
        for (k = 0; k < n; k++)
            all = all (k ? "," : "[") sprintf("%.1f", rand() * 2 - 1)
        return all "]"
    }
    function lists(n, m,  k, all) {
        for (k = 0; k < n; k++)
            all = all (k ? "," : "[") list(m)
        return all "]"
    }
    BEGIN {
        srand(1)
        for (i = 0; i < 16; i++) {
            printf "{\"input_ids\":[33"
            for (k = 0; k < 64; k++)
                printf ",31"
            for (k = 0; k < 2 * 17; k++)
                printf k % 17 ? ",32" : ",34"
            for (k = 0; k < 45; k++)
                printf ",%d", 40 + rand() * 900
            print "],\"images\":[{\"grid\":[1,16,16],\"pixels\":" \
                lists(256, 96) "}],\"audio\":[" lists(16, 64) "," \
                lists(16, 64) "]}"
        }
    }' | pppack -q -l 144 --image-token 31 --audio-token 32 --merge 2 -o even -
    ppsplit -q -p 1 hearing | jq '.stages[0].units | (map(endswith(
        "model.layers.2")) | index(true)) as $n | [.[:$n], .[$n:]]' >first.json
}
