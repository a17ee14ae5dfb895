/* SPDX-License-Identifier: MIT */
/* slots - the numbers of parameters and of saved tensors in the tables of
 * units. parts.c and parts_encoder.c say which a unit has, and how large they
 * are. */
#ifndef PP_MODEL_SLOTS_H
#define PP_MODEL_SLOTS_H

/* Products that may have adapters of low rank (lora.h). */
enum { PP_N_ADAPTED = 16 };

/* Parameters of a decoder layer. q, k, v and the gate of attention are
 * adjacent, as are the biases of the first three, gate and up, and the biases
 * of these: a layer computes each group in one product. The last ones are rows
 * for all experts (tensor.h). */
enum pp_layer_param {
    PP_P_NORM1,
    PP_P_NORM1_BIAS,
    PP_P_Q,
    PP_P_K,
    PP_P_V,
    PP_P_ATTN_GATE,
    PP_P_Q_BIAS,
    PP_P_K_BIAS,
    PP_P_V_BIAS,
    PP_P_Q_NORM,
    PP_P_K_NORM,
    PP_P_O,
    PP_P_O_BIAS,
    PP_P_NORM2,
    PP_P_NORM2_BIAS,
    PP_P_GATE,
    PP_P_UP,
    PP_P_GATE_BIAS,
    PP_P_UP_BIAS,
    PP_P_DOWN,
    PP_P_DOWN_BIAS,
    PP_P_XIELU_P, /* the numbers of xielu (kernels.h) */
    PP_P_XIELU_N,
    PP_P_XIELU_BETA, /* without a gradient, as the next */
    PP_P_XIELU_EPS,
    PP_P_Q_A, /* latent attention: queries of low rank, their norm ... */
    PP_P_Q_A_BIAS,
    PP_P_Q_A_NORM,
    PP_P_Q_B,  /* ... and their heads, in place of PP_P_Q */
    PP_P_KV_A, /* keys and values of low rank, and the part of the keys that
                  rotates */
    PP_P_KV_A_BIAS,
    PP_P_KV_A_NORM,
    PP_P_KV_B, /* the heads of keys, without that part, and of values */
    PP_P_ROUTER,
    PP_P_ROUTER_BIAS, /* of the scores that choose; without a gradient */
    PP_P_SHARED_GATE, /* of the shared expert */
    PP_P_SHARED_UP,
    PP_P_SHARED_DOWN,
    PP_P_SHARED_WEIGHT, /* (1, hidden), for the sigmoid */
    PP_P_AFTER1,        /* norms after attention and after the MLP */
    PP_P_AFTER2,
    PP_P_SINKS,         /* a score of each head */
    PP_P_ROUTER_OFFSET, /* of the logits */
    /* Linear attention (kernels/delta.h): what its product makes is adjacent.
     */
    PP_P_DELTA_QKV,
    PP_P_DELTA_Z,
    PP_P_DELTA_B,
    PP_P_DELTA_A,
    PP_P_DELTA_CONV,
    PP_P_DELTA_DT,
    PP_P_DELTA_LOG,
    PP_P_DELTA_NORM,
    PP_P_DELTA_O,
    PP_P_NEXT_EMBED, /* multi-token prediction: a copy of the embedding ... */
    PP_P_NEXT_NORM,  /* ... the norm of the next tokens' embeddings ... */
    PP_P_TRUNK_NORM, /* ... and that of the trunk's output ... */
    PP_P_JOIN,       /* ... the product of both, and the norm at the end */
    PP_P_MTP_NORM,
    PP_P_ADAPTERS, /* two for each adapter */
    PP_P_LAST_ADAPTER = PP_P_ADAPTERS + 2 * PP_N_ADAPTED - 1,
    PP_P_EXPERT_GATE,
    PP_P_EXPERT_UP,
    PP_P_EXPERT_DOWN,
    PP_P_EXPERT_GATE_BIAS,
    PP_P_EXPERT_DOWN_BIAS,
    PP_N_LAYER_PARAMS
};
/* Parameters of embedding, norm and head: a weight; that of the positions of an
 * embedding, or the bias of a norm; the connector of a generator's embedding.
 */
enum {
    PP_P_WEIGHT,
    PP_P_POSITIONS,
    PP_P_BIAS = PP_P_POSITIONS,
    PP_P_CONNECTOR,
    PP_P_CONNECTOR_BIAS,
    PP_N_END_PARAMS
};

/* Parameters of the patches and of the projector of an encoder. */
enum {
    PP_P_PATCH = PP_P_WEIGHT, /* of audio, the first convolution */
    PP_P_CLASS = 2,
    PP_P_CONV1_BIAS, /* of audio, as what follows */
    PP_P_CONV2,
    PP_P_CONV2_BIAS,
    PP_N_PATCH_PARAMS
};
enum {
    PP_P_LINEAR1,
    PP_P_LINEAR1_BIAS,
    PP_P_LINEAR2, /* the only one of an encoder of audio */
    PP_P_LINEAR2_BIAS,
    PP_P_MERGER_NORM, /* Qwen's, before it merges patches, or behind a pool */
    PP_P_MERGER_NORM_BIAS,
    PP_P_CLIP_ENDS, /* Qwen2.5-Omni's embeddings of the ends of a clip. Files
                       have them, and nobody reads them */
    PP_N_PROJECTOR_PARAMS
};

/* Saved tensors of a decoder layer, and their blocks without recomputation.
 * QKV = (NH + NKV) head_dim + NKV v_dim; with a gate of attention also NH
 * head_dim. */
enum pp_layer_saved {
    PP_S_X,         /* ACT_W: the layer's input, hidden */
    PP_S_RSTD1,     /* ACT_W: 1 */
    PP_S_MEAN1,     /* ACT_W: 1; width 0 with RMSNorm */
    PP_S_NORM1,     /* ACT_W: normed input, hidden */
    PP_S_QKV_RAW,   /* ACT_W: q and k before QK-norm, (NH + NKV) head_dim; width
                       0 without QK-norm. Of linear attention, its product */
    PP_S_QK_RSTD,   /* ACT_W: NH + NKV, or 2 if a norm is of all heads; width 0
                       without QK-norm */
    PP_S_QKV,       /* ACT_I: q and k after RoPE, and v, QKV */
    PP_S_LSE,       /* ACT_I: log-sum-exp of each head, NH */
    PP_S_ATTN,      /* ACT_W: attention output, NH v_dim */
    PP_S_GATED,     /* ACT_W: ATTN behind its gate; width 0 without one */
    PP_S_OUT1,      /* ACT_W: attention block before the norm after it, hidden;
                       width 0 without that norm */
    PP_S_RSTD_OUT1, /* ACT_W: 1 or 0 */
    PP_S_MID,       /* ACT_W: x + attention block, hidden */
    PP_S_RSTD2,     /* ACT_W: 1 */
    PP_S_MEAN2,     /* ACT_W: 1; width 0 with RMSNorm */
    PP_S_NORM2,     /* ACT_W: hidden */
    PP_S_GATE_UP,   /* ACT_I: gate and up before SwiGLU, 2 intermediate; of an
                       MLP without gate, the first product, intermediate */
    PP_S_ACT,       /* ACT_W: output of the activation, intermediate */
    PP_S_OUT2,      /* ACT_W: MLP before the norm after it, as OUT1 */
    PP_S_RSTD_OUT2, /* ACT_W: 1 or 0 */
    PP_S_DNORM1,    /* GRAD_W: gradient of NORM1, hidden */
    PP_S_DQK_NORM,  /* GRAD_W: gradient of normed q and k before RoPE,
                       (NH + NKV) head_dim; width 0 without QK-norm */
    PP_S_DQKV,      /* GRAD_W: gradient of the q, k, v products, QKV */
    PP_S_DKEYS,     /* GRAD_KEYS: gradients of k and v by later slices,
                       NKV (head_dim + v_dim) */
    PP_S_DMID,      /* GRAD_W: gradient of MID, hidden */
    PP_S_DOUT1,     /* GRAD_W: like PP_S_OUT1; o_proj's gradient, or DMID is */
    PP_S_DNORM2,    /* GRAD_W: hidden */
    PP_S_DGATE_UP,  /* GRAD_W: like PP_S_GATE_UP */
    PP_S_DXIELU,    /* GRAD_W: gradients of p and n of xielu by each token, 2 or
                       0 */
    PP_S_DY,        /* GRAD_W: gradient of the layer's output, hidden */
    PP_S_DOUT2,     /* GRAD_W: likewise of down_proj, or DY is */
    PP_S_DSINKS,    /* GRAD_W: gradients of sinks by each token, NH or 0. Linear
                       attention has that of its norm here, and that of its
                       convolution in DQK_NORM */
    /* With experts, width is an expert's, and GATE_UP, ACT and DGATE_UP are the
     * shared expert's. */
    PP_S_PROBS,           /* ACT_I: n_experts */
    PP_S_ROUTING,         /* ACT_W: three int32_t for each of top_k, as many
                             values */
    PP_S_WEIGHT,          /* ACT_W: top_k */
    PP_S_SHARED_WEIGHT,   /* ACT_W: 1; width 0 without shared_gate */
    PP_S_EXPERT_GATE_UP,  /* ACT_I: 2 top_k width */
    PP_S_EXPERT_ACT,      /* ACT_W: top_k width */
    PP_S_DROUTER,         /* GRAD_W: gradient of the router's product, n_experts
                           */
    PP_S_DSHARED_WEIGHT,  /* GRAD_W: gradient before the sigmoid; 1 or 0 */
    PP_S_DEXPERT_GATE_UP, /* GRAD_W: 2 top_k width */
    /* With latent attention; low = q_rank + kv_rank. */
    PP_S_LATENT_RAW,  /* ACT_W: before the norms, and the rotated part of the
                         keys, low + rope_dim */
    PP_S_LATENT_RSTD, /* ACT_W: 2, or 1 without q_rank */
    PP_S_LATENT,      /* ACT_W: after the norms, low */
    PP_S_DLATENT,     /* GRAD_W: low */
    PP_S_DLATENT_RAW, /* GRAD_W: low + rope_dim */
    /* A layer for multi-token prediction: */
    PP_S_NEXT,     /* ACT_W: embeddings of the next tokens, hidden */
    PP_S_TRUNK,    /* ACT_W: the trunk's output, hidden */
    PP_S_MTP_RSTD, /* ACT_W: of three norms, one after the other: 3 */
    PP_S_JOINED,   /* ACT_W: both after their norms, 2 hidden */
    PP_S_MTP_OUT,  /* ACT_W: the layer's output before the last norm, hidden
                    */
    PP_S_DMTP,     /* GRAD_W: gradient of the last norm's output, hidden */
    PP_S_DJOIN,    /* GRAD_W: gradient of the product, hidden */
    PP_S_DJOINED,  /* GRAD_W: gradient of JOINED, 2 hidden */
    PP_S_DNEXT,    /* GRAD_W: gradient of NEXT, hidden */
    PP_N_LAYER_SAVED
};
/* Saved tensors of the other units. */
enum { PP_S_EMBED_DY, PP_S_EMBED_X, PP_N_EMBED_SAVED };
/* GRAD_W hidden; ACT_W what a connector reads, or 0 */
enum { PP_S_FN_X, PP_S_FN_RSTD, PP_S_FN_MEAN, PP_S_FN_DY, PP_N_NORM_SAVED };
/* ACT_W hidden, ACT_W 1, ACT_W 1 or 0, GRAD_W hidden */
enum {
    PP_S_HEAD_X,
    PP_S_HEAD_LSE,
    PP_S_HEAD_SCALE,
    PP_S_AHEAD_X, /* the same for multi-token prediction */
    PP_S_AHEAD_LSE,
    PP_S_AHEAD_SCALE,
    PP_N_HEAD_SAVED
};
/* ACT_W all; ACT_I of the loss behind a divided head. SCALE: minus the
 * derivative of the loss by each log-probability, or its derivative by each
 * score */
enum {
    PP_S_PATCH_X,  /* ACT_W: patch_inputs; of audio, two windows of frames */
    PP_S_PATCH_DY, /* GRAD_W: hidden; of audio, that of the second convolution
                      before GELU */
    PP_S_CONV1,   /* Audio. ACT_I: the first convolution at two frames, 2 hidden
                   */
    PP_S_CONV2_X, /* ACT_W: what the second one reads, 3 hidden */
    PP_S_CONV2,   /* ACT_I: hidden */
    PP_S_DCONV1,  /* GRAD_W: gradient of CONV1, 2 hidden */
    PP_N_PATCH_SAVED
};
/* A row is a token of the encoder. */
enum {
    PP_S_FEATURES,      /* ACT_W: merge times the encoder's hidden */
    PP_S_PROJECTED,     /* ACT_I: the first product, hidden; Qwen's is as wide
                           as FEATURES */
    PP_S_PROJECTED_ACT, /* ACT_W: likewise */
    PP_S_DPROJECTED,    /* GRAD_W: likewise */
    PP_S_PROJECTOR_DY,  /* GRAD_W: hidden */
    PP_S_MERGER_X,      /* Qwen's. ACT_W: patches before the norm, or audio
                           behind the pool */
    PP_S_MERGER_RSTD,   /* ACT_W: merge */
    PP_S_MERGER_MEAN,   /* ACT_W: merge */
    PP_S_DMERGER,       /* GRAD_W: gradient of FEATURES */
    PP_N_PROJECTOR_SAVED
};
/* A row is a token that the language model gets. */

#endif
