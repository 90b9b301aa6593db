/* The families.  Tensor names are those of the Hugging Face checkpoints. */
#include "model/arch.h"

#include <string.h>

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof *(a)))
#define ALWAYS   TSR_HAS_ALWAYS
#define NEVER    TSR_HAS_NEVER

// clang-format off
#define LINEAR(n, id, b)       { .name = (n), .part = TSR_MODEL_PART_LINEAR, .lin = (id), .bias = (b) }
#define NORM(n, p, w, b)       { .name = (n), .part = (p), .weight = (w), .bias = (b) }
#define MATRIX(n, p, w, b)     { .name = (n), .part = (p), .weight = (w), .bias = (b) }
#define HEAD                   { .name = "lm_head", .part = TSR_MODEL_PART_HEAD,                  \
                                 .weight = TSR_HAS_HEAD, .bias = NEVER, .bare = true }

/* What Llama, Mistral and Qwen2 share: everything but which biases exist. */
static const struct tsr_model_role llama_roles[] = {
    MATRIX("embed_tokens", TSR_MODEL_PART_EMBED, ALWAYS, NEVER),
    NORM("layers.#.input_layernorm", TSR_MODEL_PART_ATTN_IN, ALWAYS, NEVER),
    LINEAR("layers.#.self_attn.q_proj", TSR_Q, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.k_proj", TSR_K, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.v_proj", TSR_V, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.o_proj", TSR_O, TSR_HAS_O_BIAS),
    NORM("layers.#.post_attention_layernorm", TSR_MODEL_PART_FFN_IN, ALWAYS, NEVER),
    LINEAR("layers.#.mlp.gate_proj", TSR_GATE, TSR_HAS_MLP_BIAS),
    LINEAR("layers.#.mlp.up_proj", TSR_UP, TSR_HAS_MLP_BIAS),
    LINEAR("layers.#.mlp.down_proj", TSR_DOWN, TSR_HAS_MLP_BIAS),
    NORM("norm", TSR_MODEL_PART_FINAL_NORM, ALWAYS, NEVER),
    HEAD,
};

static const struct tsr_model_role gemma2_roles[] = {
    MATRIX("embed_tokens", TSR_MODEL_PART_EMBED, ALWAYS, NEVER),
    NORM("layers.#.input_layernorm", TSR_MODEL_PART_ATTN_IN, ALWAYS, NEVER),
    LINEAR("layers.#.self_attn.q_proj", TSR_Q, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.k_proj", TSR_K, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.v_proj", TSR_V, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.o_proj", TSR_O, TSR_HAS_O_BIAS),
    NORM("layers.#.post_attention_layernorm", TSR_MODEL_PART_ATTN_OUT, ALWAYS, NEVER),
    NORM("layers.#.pre_feedforward_layernorm", TSR_MODEL_PART_FFN_IN, ALWAYS, NEVER),
    LINEAR("layers.#.mlp.gate_proj", TSR_GATE, NEVER),
    LINEAR("layers.#.mlp.up_proj", TSR_UP, NEVER),
    LINEAR("layers.#.mlp.down_proj", TSR_DOWN, NEVER),
    NORM("layers.#.post_feedforward_layernorm", TSR_MODEL_PART_FFN_OUT, ALWAYS, NEVER),
    NORM("norm", TSR_MODEL_PART_FINAL_NORM, ALWAYS, NEVER),
    HEAD,
};

static const struct tsr_model_role phi3_roles[] = {
    MATRIX("embed_tokens", TSR_MODEL_PART_EMBED, ALWAYS, NEVER),
    NORM("layers.#.input_layernorm", TSR_MODEL_PART_ATTN_IN, ALWAYS, NEVER),
    MATRIX("layers.#.self_attn.qkv_proj", TSR_MODEL_PART_QKV_ROWS, ALWAYS, NEVER),
    LINEAR("layers.#.self_attn.o_proj", TSR_O, NEVER),
    NORM("layers.#.post_attention_layernorm", TSR_MODEL_PART_FFN_IN, ALWAYS, NEVER),
    MATRIX("layers.#.mlp.gate_up_proj", TSR_MODEL_PART_GATE_UP_ROWS, ALWAYS, NEVER),
    LINEAR("layers.#.mlp.down_proj", TSR_DOWN, NEVER),
    NORM("norm", TSR_MODEL_PART_FINAL_NORM, ALWAYS, NEVER),
    HEAD,
};

#define AFFINE TSR_HAS_AFFINE
static const struct tsr_model_role opt_roles[] = {
    MATRIX("embed_tokens", TSR_MODEL_PART_EMBED, ALWAYS, NEVER),
    MATRIX("embed_positions", TSR_MODEL_PART_POSITIONS, ALWAYS, NEVER),
    MATRIX("project_in", TSR_MODEL_PART_PROJECT_IN, TSR_HAS_PROJECTION, NEVER),
    NORM("layers.#.self_attn_layer_norm", TSR_MODEL_PART_ATTN_IN, AFFINE, AFFINE),
    LINEAR("layers.#.self_attn.q_proj", TSR_Q, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.k_proj", TSR_K, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.v_proj", TSR_V, TSR_HAS_QKV_BIAS),
    LINEAR("layers.#.self_attn.out_proj", TSR_O, TSR_HAS_O_BIAS),
    NORM("layers.#.final_layer_norm", TSR_MODEL_PART_FFN_IN, AFFINE, AFFINE),
    LINEAR("layers.#.fc1", TSR_UP, TSR_HAS_MLP_BIAS),
    LINEAR("layers.#.fc2", TSR_DOWN, TSR_HAS_MLP_BIAS),
    NORM("final_layer_norm", TSR_MODEL_PART_FINAL_NORM, TSR_HAS_FINAL_NORM | AFFINE,
         TSR_HAS_FINAL_NORM | AFFINE),
    MATRIX("project_out", TSR_MODEL_PART_PROJECT_OUT, TSR_HAS_PROJECTION, NEVER),
    HEAD,
};

static const struct tsr_model_role bloom_roles[] = {
    MATRIX("word_embeddings", TSR_MODEL_PART_EMBED, ALWAYS, NEVER),
    NORM("word_embeddings_layernorm", TSR_MODEL_PART_EMBED_NORM, ALWAYS, ALWAYS),
    NORM("h.#.input_layernorm", TSR_MODEL_PART_ATTN_IN, ALWAYS, ALWAYS),
    MATRIX("h.#.self_attention.query_key_value", TSR_MODEL_PART_QKV_HEADS, ALWAYS, ALWAYS),
    LINEAR("h.#.self_attention.dense", TSR_O, ALWAYS),
    NORM("h.#.post_attention_layernorm", TSR_MODEL_PART_FFN_IN, ALWAYS, ALWAYS),
    LINEAR("h.#.mlp.dense_h_to_4h", TSR_UP, ALWAYS),
    LINEAR("h.#.mlp.dense_4h_to_h", TSR_DOWN, ALWAYS),
    NORM("ln_f", TSR_MODEL_PART_FINAL_NORM, ALWAYS, ALWAYS),
    HEAD,
};

/* Buffers that older exporters stored; they follow from config.json. */
static const char *const rotary_buffers[] = {
    "layers.#.self_attn.rotary_emb.inv_freq", "layers.#.self_attn.rotary_emb.cos_cached",
    "layers.#.self_attn.rotary_emb.sin_cached", "rotary_emb.inv_freq", NULL,
};
static const char *const opt_buffers[] = { "version", NULL };
static const char *const bloom_buffers[] = {
    "h.#.attn.masked_bias", "h.#.self_attention.masked_bias", NULL,
};

static const struct tsr_model_arch table[] = {
    { .family = { "llama", "LlamaForCausalLM", "llama",
                  "Llama 2 and 3 and what shares their shape, rope scaling included" },
      .base = "LlamaModel", .config = tsr_model_config_llama, .prefixes = { "model.", "" },
      .roles = llama_roles, .n_roles = COUNT(llama_roles), .ignored = rotary_buffers,
      .def = { .positions = 2048, .eps = 1e-6, .bos = 1, .eos = 2 } },
    { .family = { "mistral", "MistralForCausalLM", "mistral", "Mistral, sliding window included" },
      .base = "MistralModel", .config = tsr_model_config_mistral, .prefixes = { "model.", "" },
      .roles = llama_roles, .n_roles = COUNT(llama_roles), .ignored = rotary_buffers,
      .def = { .kv_heads = 8, .positions = 131072, .window = 4096, .eps = 1e-6, .bos = 1,
               .eos = 2 } },
    { .family = { "qwen2", "Qwen2ForCausalLM", "qwen2", "Qwen2 and Qwen2.5" },
      .base = "Qwen2Model", .config = tsr_model_config_qwen2, .prefixes = { "model.", "" },
      .roles = llama_roles, .n_roles = COUNT(llama_roles), .ignored = rotary_buffers,
      .def = { .kv_heads = 32, .positions = 32768, .window = 4096, .eps = 1e-6, .bos = -1,
               .eos = -1 } },
    { .family = { "gemma2", "Gemma2ForCausalLM", "gemma2",
                  "Gemma 2: soft-capping, alternating windows, norms on both sides" },
      .base = "Gemma2Model", .config = tsr_model_config_gemma2, .prefixes = { "model.", "" },
      .roles = gemma2_roles, .n_roles = COUNT(gemma2_roles), .ignored = rotary_buffers,
      .def = { .kv_heads = 4, .head_dim = 256, .positions = 8192, .window = 4096, .eps = 1e-6,
               .bos = 2, .eos = 1, .tied = true } },
    { .family = { "opt", "OPTForCausalLM", "opt", "OPT, 350m's post-norm and projections included" },
      .base = "OPTModel", .config = tsr_model_config_opt, .prefixes = { "model.decoder.", "decoder." },
      .roles = opt_roles, .n_roles = COUNT(opt_roles), .ignored = opt_buffers,
      .def = { .positions = 2048, .eps = 1e-5, .bos = 2, .eos = 2, .tied = true } },
    { .family = { "bloom", "BloomForCausalLM", "bloom", "BLOOM: ALiBi, fused query-key-value" },
      .base = "BloomModel", .config = tsr_model_config_bloom, .prefixes = { "transformer.", "" },
      .roles = bloom_roles, .n_roles = COUNT(bloom_roles), .ignored = bloom_buffers,
      .def = { .positions = 2048, .eps = 1e-5, .bos = 1, .eos = 2, .tied = true } },
    { .family = { "phi3", "Phi3ForCausalLM", "phi3",
                  "Phi-3: fused projections, long rope, sliding window" },
      .base = "Phi3Model", .config = tsr_model_config_phi3, .prefixes = { "model.", "" },
      .roles = phi3_roles, .n_roles = COUNT(phi3_roles), .ignored = rotary_buffers,
      .def = { .positions = 4096, .eps = 1e-5, .bos = 1, .eos = 32000 } },
};

// clang-format on

const struct tsr_model_arch *tsr_model_arch_table(uint32_t *n)
{
    *n = COUNT(table);
    return table;
}

const struct tsr_model_family *tsr_model_family_get(uint64_t i)
{
    return i < COUNT(table) ? &table[i].family : NULL;
}

bool tsr_model_tensor_name_matches(const char *pattern, const char *name)
{
    for (; *pattern; pattern++) {
        if (*pattern == '#') {
            if (*name < '0' || *name > '9')
                return false;
            while (*name >= '0' && *name <= '9')
                name++;
        } else if (*name++ != *pattern) {
            return false;
        }
    }
    return *name == '\0';
}
