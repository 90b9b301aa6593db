/* Which layers have a backward pass. */
#include "gradient/internal.h"

#include "engine/rope.h"
#include "tessera/backend.h"

static bool known_func(uint32_t func)
{
    return func == TSR_FUNC_SILU || func == TSR_FUNC_GELU_TANH || func == TSR_FUNC_GELU_ERF ||
           func == TSR_FUNC_RELU;
}

const char *tsr_gradient_refusal(const struct tsr_model *m, uint64_t layer)
{
    const struct tsr_model_hparams *hp = &m->hp;
    if (tsr_model_is_recurrent(hp, layer))
        return "it has the gated delta rule in place of attention";
    if (hp->sparse && hp->sparse[layer])
        return "it has experts";
    if (hp->latent.rank)
        return "its attention is latent";
    if (hp->norm_place != TSR_MODEL_NORM_BEFORE || hp->residual_from_norm)
        return "its norms are not before attention and feed-forward";
    if (hp->attn_gate)
        return "its attention has a gate";
    if (m->layers[layer].sinks)
        return "its attention has sinks";
    if (hp->attn_softcap > 0.0f)
        return "its attention scores are capped";
    if (hp->positions == TSR_MODEL_POSITIONS_ALIBI)
        return "its positions are ALiBi";
    if (hp->positions == TSR_MODEL_POSITIONS_ROPE &&
        (tsr_engine_rope_varies(&hp->rope) ||
         (hp->rope_of && hp->rope_of[layer] == TSR_MODEL_ROPE_OF_SLIDING &&
          tsr_engine_rope_varies(&hp->rope_sliding))))
        return "its rotary angles depend on the length of the sequence";
    if (hp->qk_norm != TSR_MODEL_QK_NORM_NONE && hp->qk_norm != TSR_MODEL_QK_NORM_HEAD)
        return "its queries and keys have a norm over more than one head";
    return known_func(hp->func) ? NULL : "its feed-forward has a clamped function";
}
