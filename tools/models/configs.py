"""Random configurations of each family that transformers has: the sizes are small, and every key that changes the
function takes each of its forms.  family(name, random.Random) returns a configuration of transformers."""
import transformers

R = None  # the random numbers of the call
FAMILIES = {}
ACTS = ("silu", "gelu", "relu", "gelu_pytorch_tanh")


def listed(make):
    FAMILIES[make.__name__] = make
    return make


def one(*of):
    return R.choice(of)


def chance(p):
    return R.random() < p


def yarn(rope):
    rope.update(factor=one(4.0, 8.0, 40.0), original_max_position_embeddings=one(16, 64, 128))
    if chance(0.5):
        rope.update(beta_fast=one(32.0, 16.0), beta_slow=one(1.0, 2.0))
    if chance(0.3):
        rope["attention_factor"] = one(1.0, 1.2, 0.8)
    elif chance(0.4):
        rope.update(mscale=one(1.0, 0.707), mscale_all_dim=one(1.0, 0.5, 0.707))
    if chance(0.4):
        rope["truncate"] = one(True, False)


def llama3(rope):
    rope.update(factor=one(4.0, 8.0), low_freq_factor=one(1.0, 2.0), high_freq_factor=4.0,
                original_max_position_embeddings=one(32, 64, 128))


def rope_of(*forms, **more):
    rope = {"rope_type": one(*forms), "rope_theta": one(10000.0, 500000.0, 1234.5)}
    if rope["rope_type"] == "linear":
        rope["factor"] = one(2.0, 4.0, 8.0)
    if rope["rope_type"] == "yarn":
        yarn(rope)
    if rope["rope_type"] == "llama3":
        llama3(rope)
    rope.update(more)
    return rope


def sizes(square=False, **more):
    """Common keys.  `square`: the heads fill the hidden size; otherwise half of the time, and head_dim says so."""
    heads = one(2, 4, 6, 8)
    width = one(8, 16, 32)
    c = dict(vocab_size=one(64, 97, 128), intermediate_size=one(24, 48, 56, 96), num_hidden_layers=one(1, 2, 3, 5),
             num_attention_heads=heads, num_key_value_heads=one(*[k for k in (1, 2, 3, 4, 6, 8) if heads % k == 0]),
             max_position_embeddings=one(64, 256, 1024), tie_word_embeddings=one(True, False), bos_token_id=1,
             eos_token_id=2, pad_token_id=0)
    c["hidden_size"] = heads * width if square or chance(0.5) else heads * one(4, 8, 12)
    if not square:
        c["head_dim"] = width
    c.update(more)
    return c


def kinds(c, name):
    return [one(name, "full_attention") for _ in range(c["num_hidden_layers"])]


def windows(c, p=0.5):
    c["sliding_window"] = one(4, 5, 8)
    if chance(p):
        c["layer_types"] = kinds(c, "sliding_attention")


def late_windows(c):
    c.update(use_sliding_window=one(True, False), sliding_window=one(6, 9), max_window_layers=one(0, 1, 2))


def experts(c, key="num_experts"):
    c[key] = one(2, 4, 5, 8)
    c["num_experts_per_tok"] = R.randint(1, min(c[key], 4))


def multipliers(c):
    c.update(embedding_multiplier=one(1.0, 12.0), attention_multiplier=one(1.0, 0.0156, 0.3),
             residual_multiplier=one(1.0, 0.22), logits_scaling=one(1.0, 8.0))


@listed
def llama():
    c = sizes(attention_bias=one(True, False), mlp_bias=one(True, False), hidden_act=one(*ACTS),
              rms_norm_eps=one(1e-5, 1e-6), rope_parameters=rope_of("default", "linear", "yarn", "llama3"))
    return transformers.LlamaConfig(**c)


@listed
def mistral():
    c = sizes(sliding_window=one(None, 5, 8, 4096), rope_parameters=rope_of("default", "linear", "yarn"))
    return transformers.MistralConfig(**c)


@listed
def qwen2():
    c = sizes(square=True, rope_parameters=rope_of("default", "yarn"))
    late_windows(c)
    return transformers.Qwen2Config(**c)


@listed
def qwen3():
    c = sizes(attention_bias=one(True, False), rope_parameters=rope_of("default", "linear", "yarn"))
    late_windows(c)
    return transformers.Qwen3Config(**c)


@listed
def qwen3_moe():
    c = sizes(attention_bias=one(True, False), rope_parameters=rope_of("default", "yarn"), norm_topk_prob=one(True, False),
              moe_intermediate_size=one(16, 24, 40), decoder_sparse_step=one(1, 1, 2))
    c["mlp_only_layers"] = one([], [c["num_hidden_layers"] - 1])
    experts(c)
    late_windows(c)
    return transformers.Qwen3MoeConfig(**c)


@listed
def mixtral():
    c = sizes(sliding_window=one(None, None, 7), rope_parameters=rope_of("default", "yarn"))
    experts(c, "num_local_experts")
    return transformers.MixtralConfig(**c)


@listed
def phimoe():
    c = sizes(square=True, tie_word_embeddings=False, attention_bias=one(True, False), lm_head_bias=one(True, False),
              sliding_window=one(None, 7, 2047), rope_parameters=rope_of("default"))
    experts(c, "num_local_experts")
    c["num_experts_per_tok"] = 2
    return transformers.PhimoeConfig(**c)


@listed
def gemma2():
    c = sizes(square=True, query_pre_attn_scalar=one(16, 24, 144), tie_word_embeddings=True,
              final_logit_softcapping=one(30.0, 5.0, None), attn_logit_softcapping=one(50.0, 2.0, None),
              attention_bias=one(True, False), rope_parameters=rope_of("default"))
    c["head_dim"] = one(8, 16, 32)
    windows(c)
    return transformers.Gemma2Config(**c)


@listed
def gemma3():
    c = sizes(square=True, query_pre_attn_scalar=one(16, 24), tie_word_embeddings=True, num_hidden_layers=one(2, 3, 6, 7),
              final_logit_softcapping=one(30.0, None), attn_logit_softcapping=None,
              rope_parameters={"full_attention": rope_of("default", "linear"),
                               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    c["head_dim"] = one(8, 16, 32)
    windows(c)
    return transformers.Gemma3TextConfig(**c)


@listed
def gpt_oss():
    c = sizes(tie_word_embeddings=False, rope_parameters=rope_of("default", "yarn"))
    experts(c, "num_local_experts")
    windows(c)
    return transformers.GptOssConfig(**c)


@listed
def granite():
    c = sizes(square=True, attention_bias=one(True, False), mlp_bias=one(True, False),
              rope_parameters=rope_of("default", "yarn"))
    multipliers(c)
    return transformers.GraniteConfig(**c)


@listed
def granitemoe():
    c = sizes(square=True, attention_bias=one(True, False), rope_parameters=rope_of("default"))
    experts(c, "num_local_experts")
    multipliers(c)
    return transformers.GraniteMoeConfig(**c)


@listed
def smollm3():
    c = sizes(square=True, attention_bias=one(True, False), mlp_bias=one(True, False),
              rope_parameters=rope_of("default", "yarn"))
    if chance(0.5):
        c["no_rope_layers"] = [one(0, 1) for _ in range(c["num_hidden_layers"])]
    else:
        c["no_rope_layer_interval"] = one(2, 3, 4)
    if chance(0.4):
        c.update(use_sliding_window=True, sliding_window=one(5, 8))
    return transformers.SmolLM3Config(**c)


@listed
def olmo2():
    c = sizes(square=True, attention_bias=one(True, False), rope_parameters=rope_of("default", "yarn"))
    return transformers.Olmo2Config(**c)


@listed
def olmo3():
    c = sizes(square=True, attention_bias=one(True, False), rope_parameters=rope_of("default", "yarn"))
    windows(c)
    return transformers.Olmo3Config(**c)


@listed
def glm4():
    c = sizes(attention_bias=one(True, False), rope_parameters=rope_of("default", partial_rotary_factor=one(0.25, 0.5, 1.0)))
    return transformers.Glm4Config(**c)


@listed
def cohere():
    c = sizes(square=True, tie_word_embeddings=True, use_qk_norm=one(True, False), logit_scale=one(0.0625, 0.25, 1.0),
              attention_bias=one(True, False), rope_parameters=rope_of("default"))
    return transformers.CohereConfig(**c)


@listed
def cohere2():
    c = sizes(tie_word_embeddings=True, logit_scale=one(0.0625, 0.25), attention_bias=one(True, False),
              rope_parameters=rope_of("default"))
    windows(c)
    return transformers.Cohere2Config(**c)


@listed
def starcoder2():
    c = sizes(square=True, use_bias=one(True, False), sliding_window=one(None, 5, 8), hidden_act=one("gelu", ACTS[3]),
              rope_parameters=rope_of("default", "yarn"))
    return transformers.Starcoder2Config(**c)


def long_rope(pairs):
    rope = rope_of("longrope", original_max_position_embeddings=one(16, 24, 200))
    rope["short_factor"] = [round(1 + R.random(), 3) for _ in range(pairs)]
    rope["long_factor"] = [round(1 + 8 * R.random(), 3) for _ in range(pairs)]
    if chance(0.3):
        rope["attention_factor"] = 1.1
    return rope


@listed
def phi3():
    c = sizes(square=True, sliding_window=one(None, 5, 8))
    width = c["hidden_size"] // c["num_attention_heads"]
    partial = one(1.0, 0.5)
    rope = long_rope(int(width * partial) // 2) if chance(0.5) else rope_of("default")
    rope["partial_rotary_factor"] = partial
    if rope["rope_type"] == "longrope":
        c["original_max_position_embeddings"] = rope["original_max_position_embeddings"]
        c["max_position_embeddings"] = c["original_max_position_embeddings"] * one(1, 4, 8)
    return transformers.Phi3Config(rope_parameters=rope, **c)


def delta(c):
    c.update(head_dim=one(16, 32), num_hidden_layers=one(2, 4, 5), attention_bias=one(True, False),
             linear_num_key_heads=one(1, 2), linear_key_head_dim=one(8, 16), linear_value_head_dim=one(8, 16, 24),
             linear_conv_kernel_dim=one(2, 4))
    c["linear_num_value_heads"] = c["linear_num_key_heads"] * one(1, 2, 4)
    if chance(0.6):
        c["layer_types"] = kinds(c, "linear_attention")


@listed
def qwen3_next():
    c = sizes(moe_intermediate_size=one(16, 24), shared_expert_intermediate_size=one(16, 24), norm_topk_prob=one(True, False),
              decoder_sparse_step=one(1, 1, 2), mlp_only_layers=one([], [0]),
              rope_parameters=rope_of("default", "yarn", partial_rotary_factor=one(0.25, 0.5)))
    delta(c)
    experts(c)
    return transformers.Qwen3NextConfig(**c)


def sections(c):
    """Ranges of positions of text, rows and columns; text has the same position in each."""
    rope = rope_of("default", partial_rotary_factor=one(0.25, 0.5), mrope_interleaved=True)
    pairs = int(c["head_dim"] * rope["partial_rotary_factor"]) // 2
    rope["mrope_section"] = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    return rope


@listed
def qwen3_5():
    c = sizes()
    delta(c)
    return transformers.Qwen3_5TextConfig(rope_parameters=sections(c), **c)


@listed
def qwen3_5_moe():
    c = sizes(moe_intermediate_size=one(16, 24), shared_expert_intermediate_size=one(16, 24))
    del c["intermediate_size"]
    delta(c)
    experts(c)
    return transformers.Qwen3_5MoeTextConfig(rope_parameters=sections(c), **c)


def latent():
    c = sizes(square=True, tie_word_embeddings=False, attention_bias=one(True, False), kv_lora_rank=one(16, 24),
              q_lora_rank=one(None, 20, 32), qk_rope_head_dim=one(8, 16), qk_nope_head_dim=one(8, 16),
              v_head_dim=one(8, 16, 24), moe_intermediate_size=one(16, 24), n_routed_experts=8, n_shared_experts=one(1, 2),
              num_experts_per_tok=one(1, 2), first_k_dense_replace=one(0, 1), routed_scaling_factor=one(1.0, 2.5),
              rope_parameters=rope_of("default", "yarn"))
    c["num_key_value_heads"] = c["num_attention_heads"]
    c["n_group"], c["topk_group"] = one((1, 1), (2, 1), (4, 2))
    return c


@listed
def deepseek_v2():
    c = latent()
    c.update(norm_topk_prob=False, topk_method="greedy" if c["n_group"] == 1 else "group_limited_greedy")
    return transformers.DeepseekV2Config(**c)


@listed
def deepseek_v3():
    c = latent()
    c.update(norm_topk_prob=one(True, False), rope_interleave=one(True, False))
    return transformers.DeepseekV3Config(**c)


@listed
def glm4_moe_lite():
    c = latent()
    c.update(norm_topk_prob=one(True, False), rope_interleave=one(True, False))
    del c["first_k_dense_replace"]
    if chance(0.5):
        c["mlp_layer_types"] = ["dense"] + ["sparse"] * (c["num_hidden_layers"] - 1)
    return transformers.Glm4MoeLiteConfig(**c)


def routed(c):
    c.update(moe_intermediate_size=one(16, 24), n_routed_experts=8, n_shared_experts=one(1, 2), norm_topk_prob=one(True, False),
             num_experts_per_tok=one(1, 2), routed_scaling_factor=one(1.0, 2.5))
    c["n_group"], c["topk_group"] = one((1, 1), (2, 1), (4, 2))


@listed
def glm4_moe():
    c = sizes(attention_bias=one(True, False), use_qk_norm=one(True, False), first_k_dense_replace=one(0, 1),
              num_mtp_layers=one(0, 1), rope_parameters=rope_of("default", "yarn", partial_rotary_factor=one(0.25, 0.5, 1.0)))
    routed(c)
    return transformers.Glm4MoeConfig(**c)


@listed
def solar_open():
    c = sizes(attention_bias=one(True, False), rope_parameters=rope_of("default", "yarn"))
    routed(c)
    del c["intermediate_size"]
    return transformers.SolarOpenConfig(**c)


@listed
def dots1():
    c = sizes(attention_bias=one(True, False), first_k_dense_replace=one(0, 1), sliding_window=one(None, 5, 8),
              max_window_layers=one(0, 1, 2), rope_parameters=rope_of("default", "yarn"))
    routed(c)
    return transformers.Dots1Config(**c)


@listed
def minimax_m2():
    c = sizes(rope_parameters=rope_of("default", "yarn", partial_rotary_factor=one(0.5, 1.0)))
    experts(c, "num_local_experts")
    return transformers.MiniMaxM2Config(**c)


@listed
def qwen2_moe():
    c = sizes(square=True, qkv_bias=one(True, False), rope_parameters=rope_of("default", "yarn"),
              norm_topk_prob=one(True, False), moe_intermediate_size=one(16, 24), decoder_sparse_step=one(1, 1, 2),
              shared_expert_intermediate_size=one(16, 40))
    c["mlp_only_layers"] = one([], [c["num_hidden_layers"] - 1])
    experts(c)
    c.update(use_sliding_window=one(True, False), sliding_window=one(6, 9), max_window_layers=c["num_hidden_layers"])
    return transformers.Qwen2MoeConfig(**c)


@listed
def olmoe():
    c = sizes(square=True, attention_bias=one(True, False), rope_parameters=rope_of("default", "yarn"),
              norm_topk_prob=one(True, False))
    experts(c)
    return transformers.OlmoeConfig(**c)


@listed
def seed_oss():
    c = sizes(attention_bias=one(True, False), attention_out_bias=one(True, False), mlp_bias=one(True, False),
              rope_parameters=rope_of("default", "yarn"))
    return transformers.SeedOssConfig(**c)


@listed
def ernie4_5():
    c = sizes(use_bias=one(True, False), rope_parameters=rope_of("default"))
    return transformers.Ernie4_5Config(**c)


@listed
def ernie4_5_moe():
    c = sizes(square=True, use_bias=one(True, False), rope_parameters=rope_of("default"), moe_intermediate_size=one(16, 24),
              moe_num_shared_experts=one(0, 1, 2), moe_layer_start_index=one(0, 1))
    experts(c, "moe_num_experts")
    c["moe_k"] = c.pop("num_experts_per_tok")
    c["use_bias"] &= not c["tie_word_embeddings"]  # no model has the bias of a tied head
    return transformers.Ernie4_5_MoeConfig(**c)


@listed
def exaone4():
    c = sizes(square=True, rope_parameters=rope_of("default", "llama3"))
    windows(c)
    if chance(0.3):
        c.update(sliding_window=None, layer_types=["full_attention"] * c["num_hidden_layers"])
    return transformers.Exaone4Config(**c)


@listed
def glm():
    c = sizes(attention_bias=one(True, False), rope_parameters=rope_of("default", partial_rotary_factor=one(0.25, 0.5, 1.0)))
    return transformers.GlmConfig(**c)


@listed
def gemma():
    c = sizes(square=True, tie_word_embeddings=True, attention_bias=one(True, False), rope_parameters=rope_of("default"))
    c["head_dim"] = one(8, 16, 32)
    return transformers.GemmaConfig(**c)


@listed
def opt():
    heads, before = one(2, 3, 4, 8), one(True, False)
    hidden = heads * one(8, 16)
    return transformers.OPTConfig(
        vocab_size=97, hidden_size=hidden, ffn_dim=one(48, 96), num_hidden_layers=one(1, 2, 3), num_attention_heads=heads,
        max_position_embeddings=128, do_layer_norm_before=before, activation_function=one("relu", "gelu"),
        enable_bias=one(True, True, False), layer_norm_elementwise_affine=one(True, True, False),
        word_embed_proj_dim=one(hidden, 16), tie_word_embeddings=one(True, False), bos_token_id=1, eos_token_id=2,
        pad_token_id=0, _remove_final_layer_norm=not before and chance(0.5))


@listed
def bloom():
    heads = one(2, 3, 4, 6, 8)
    return transformers.BloomConfig(
        vocab_size=97, hidden_size=heads * one(8, 16), n_layer=one(1, 2, 3), n_head=heads, bos_token_id=1, eos_token_id=2,
        apply_residual_connection_post_layernorm=one(True, False), tie_word_embeddings=one(True, True, False), pad_token_id=0)


SIGHT = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)


@listed
def gemma3_wrapped():
    text = gemma3()
    text.final_logit_softcapping = None  # transformers leaves it out in the wrapper
    return transformers.Gemma3Config(text_config=text, vision_config=dict(SIGHT, model_type="siglip_vision_model"),
                                     mm_tokens_per_image=4)


@listed
def mistral3():
    c = sizes(square=True, tie_word_embeddings=False, sliding_window=None, rope_parameters=rope_of("default", "yarn"))
    return transformers.Mistral3Config(text_config=transformers.MistralConfig(**c), tie_word_embeddings=False,
                                       vision_config=dict(SIGHT, model_type="pixtral", head_dim=8))


def blocks(hidden):
    return dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=2, out_hidden_size=hidden,
                num_position_embeddings=16)


@listed
def qwen3_5_wrapped():
    text = qwen3_5()
    return transformers.Qwen3_5Config(text_config=text.to_dict(), vision_config=blocks(text.hidden_size),
                                      tie_word_embeddings=text.tie_word_embeddings)


@listed
def qwen3_5_moe_wrapped():
    text = qwen3_5_moe()
    return transformers.Qwen3_5MoeConfig(text_config=text.to_dict(), vision_config=blocks(text.hidden_size),
                                         tie_word_embeddings=text.tie_word_embeddings)


def of_sight(rope, width):
    """The same, of whole heads."""
    pairs = width // 2
    rope["mrope_section"] = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    return rope


@listed
def qwen2_5_vl():
    c = sizes(square=True)
    late_windows(c)
    c["rope_parameters"] = of_sight(rope_of("default"), c["hidden_size"] // c["num_attention_heads"])
    return transformers.Qwen2_5_VLConfig(text_config=c, vision_config=dict(blocks(c["hidden_size"]), window_size=4),
                                         tie_word_embeddings=c["tie_word_embeddings"])


@listed
def qwen3_vl():
    c = sizes(attention_bias=one(True, False))
    c["rope_parameters"] = of_sight(rope_of("default"), c["head_dim"])
    return transformers.Qwen3VLConfig(text_config=c, vision_config=blocks(c["hidden_size"]),
                                      tie_word_embeddings=c["tie_word_embeddings"])


@listed
def qwen3_vl_moe():
    c = sizes(attention_bias=one(True, False), moe_intermediate_size=one(16, 24), decoder_sparse_step=one(1, 1, 2),
              mlp_only_layers=one([], [0]))
    experts(c)
    c["rope_parameters"] = of_sight(rope_of("default"), c["head_dim"])
    return transformers.Qwen3VLMoeConfig(text_config=c, vision_config=blocks(c["hidden_size"]),
                                         tie_word_embeddings=c["tie_word_embeddings"])


def family(name, random):
    global R
    R = random
    return FAMILIES[name]()
