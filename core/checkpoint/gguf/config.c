/* The metadata of a GGUF file as the config.json of a Hugging Face folder, so that one reader
 * checks both. */
#include "checkpoint/gguf/config_internal.h"

#include <stdlib.h>
#include <string.h>

/* Keys that change the computation in a way that these families do not support. */
static tsr_status refuse_strange(struct tsr_gguf_config_out *o, bool scales)
{
    static const struct {
        const char *key;
        double      harmless;
        bool        scale; /* read by a family that has them */
    } strange[] = {
        { "expert_count", 0.0, false },         { "logit_scale", 1.0, true },
        { "residual_scale", 1.0, true },        { "embedding_scale", 1.0, true },
        { "attention.scale", 0.0, true },       { "attention.max_alibi_bias", 8.0, false },
        { "attention.clamp_kqv", 0.0, false },  { "attention.causal", 1.0, false },
        { "use_parallel_residual", 0.0, false }
    };
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        if (strange[i].scale && scales)
            continue;
        char                       name[128];
        const struct tsr_gguf_key *k =
            tsr_gguf_key(o->g, tsr_gguf_config_key(o, strange[i].key, name));
        double v = strange[i].harmless;
        if (k && k->type == TSR_GGUF_BOOL)
            v = o->g->header[k->at];
        else
            TSR_TRY(tsr_gguf_config_real(o, strange[i].key, false, &v));
        if (v != strange[i].harmless)
            return tsr_fail(o->err, TSR_E_INPUT,
                            "%s: \"%s\" is %g, which is not supported for this architecture",
                            o->g->path, name, v);
    }
    return TSR_OK;
}

/* ---- the whole ---------------------------------------------------------------------- */

static tsr_status token_ids(struct tsr_gguf_config_out *o)
{
    static const char *const ends[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    int64_t                  bos = -1, id, seen[3];
    size_t                   n = 0;
    TSR_TRY(tsr_gguf_int(o->g, "tokenizer.ggml.bos_token_id", false, 0, UINT32_MAX, &bos, o->err));
    TSR_TRY(tsr_gguf_config_put(o, "bos_token_id", bos >= 0 ? json_integer(bos) : json_null()));
    json_t *eos = json_array();
    if (!eos)
        return tsr_fail_nomem(o->err, 64, "eos_token_id");
    tsr_status st = TSR_OK;
    for (size_t i = 0; i < 3 && st == TSR_OK; i++) {
        id = -1;
        st = tsr_gguf_int(o->g, ends[i], false, 0, UINT32_MAX, &id, o->err);
        for (size_t k = 0; k < n; k++)
            id = seen[k] == id ? -1 : id;
        if (st == TSR_OK && id >= 0) {
            seen[n++] = id;
            st = json_array_append_new(eos, json_integer(id)) == 0
                     ? TSR_OK
                     : tsr_fail_nomem(o->err, 64, "eos_token_id");
        }
    }
    if (st == TSR_OK && json_object_set_new(o->j, "eos_token_id",
                                            n == 0   ? json_null()
                                            : n == 1 ? json_integer(seen[0])
                                                     : json_incref(eos)) != 0)
        st = tsr_fail_nomem(o->err, 64, "eos_token_id");
    json_decref(eos);
    return st;
}

static tsr_status fill(struct tsr_gguf_config_out *o)
{
    const struct tsr_gguf_tensor        *embed = tsr_gguf_find(o->g, "token_embd.weight");
    const struct tsr_gguf_config_family *f = tsr_gguf_config_family(o->arch);
    if (!f)
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: the architecture \"%.40s\" is not supported; of GGUF files llama, "
                        "qwen2, qwen3, gemma2, gemma3, phi3, olmo2, granite and bloom are",
                        o->g->path, o->arch);
    if (!embed || embed->rank != 2)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: the matrix \"token_embd.weight\" is missing",
                        o->g->path);
    TSR_TRY(refuse_strange(o, f->scales));
    TSR_TRY(tsr_gguf_config_put(o, "architectures", json_pack("[s]", f->architecture)));
    TSR_TRY(tsr_gguf_config_put(o, "model_type", json_string(o->arch)));
    TSR_TRY(tsr_gguf_config_put(o, "vocab_size", json_integer((json_int_t)embed->dims[1])));
    TSR_TRY(tsr_gguf_config_put(o, "tie_word_embeddings",
                                json_boolean(!tsr_gguf_config_has(o, "output.weight"))));
    TSR_TRY(token_ids(o));
    return f->config(o);
}

tsr_status tsr_gguf_config(const struct tsr_gguf *g, char **text, uint64_t *len,
                           struct tsr_err *err)
{
    char *arch = NULL;
    TSR_TRY(tsr_gguf_str(g, "general.architecture", true, &arch, err));
    struct tsr_gguf_config_out o = { .g = g, .arch = arch, .j = json_object(), .err = err };
    tsr_status                 st = o.j ? fill(&o) : tsr_fail_nomem(err, 64, g->path);
    if (st == TSR_OK)
        st = tsr_json_text(o.j, JSON_INDENT(2), text, len, err);
    json_decref(o.j);
    free(arch);
    return st;
}
