/* config.json and generation_config.json to hparams, from bytes. */
#include "model/config.h"

#include <math.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

/* What the engine may rely on. */
static void check(const struct tsr_model_hparams *hp)
{
    must(hp->vocab > 0 && hp->hidden > 0 && hp->layers > 0 && hp->ffn > 0 && hp->embed_dim > 0);
    must(hp->max_positions > 0 && hp->heads > 0 && hp->kv_heads > 0 && hp->head_dim > 0);
    must(hp->heads % hp->kv_heads == 0);
    must(hp->n_eos <= TSR_MAX_EOS && hp->window != NULL);
    must(hp->bos >= -1 && hp->bos <= UINT32_MAX);
    must(isfinite(hp->norm_eps) && isfinite(hp->attn_scale) && hp->attn_scale > 0.0f);
    for (uint64_t i = 0; i < hp->layers; i++)
        must(hp->window[i] <= INT32_MAX + 1u);
    if (hp->positions != TSR_MODEL_POSITIONS_ROPE)
        return;
    const struct tsr_model_rope *r = &hp->rope;
    must(r->dim >= 2 && r->dim % 2 == 0 && r->dim <= hp->head_dim);
    must(isfinite(r->theta) && isfinite(r->factor) && isfinite(r->attention_factor));
    must(isfinite(r->long_ratio) && r->long_ratio > 0);
    must((r->short_factor != NULL) == (r->scaling == TSR_MODEL_ROPE_LONG));
    must(hp->rope_sliding.dim == 0 || hp->rope_sliding.dim == r->dim);
    must(isfinite(hp->rope_sliding.theta) && hp->rope_of != NULL);
    for (uint64_t i = 0; i < hp->layers; i++)
        must(hp->rope_of[i] <= TSR_MODEL_ROPE_OF_NONE &&
             (hp->rope_of[i] != TSR_MODEL_ROPE_OF_SLIDING || hp->rope_sliding.dim));
    for (uint32_t i = 0; r->short_factor && i < r->dim / 2; i++)
        must(isfinite(r->short_factor[i]) && isfinite(r->long_factor[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_model_config c;
    const char             *text = size ? (const char *)data : "";
    tsr_status              st = tsr_model_config_parse(&c, "input", text, size, &e.err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e.text[0] != '\0');
    if (st == TSR_OK) {
        check(&c.hp);
        if (tsr_model_generation_parse(&c, "input", text, size, &e.err) == TSR_OK)
            check(&c.hp);
    }
    tsr_model_config_free(&c);
    return 0;
}
