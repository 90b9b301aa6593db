/* The metadata of a GGUF file as the config.json of a Hugging Face folder, so that one reader
 * checks both. */
#include "checkpoint/gguf/config_internal.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Keys that change the computation in a way that a family must know: the value that changes nothing for this one, and
 * whether it reads the key. */
static tsr_status refuse_strange(struct tsr_gguf_config_out *o)
{
    const struct tsr_model_family *f = o->f;
    const bool sigmoid = f->experts.is && f->experts.router == TSR_MODEL_ROUTER_SIGMOID;
    const bool whole = f->experts.is && f->experts.router == TSR_MODEL_ROUTER_SOFTMAX &&
                       !f->experts.normalize && f->experts.normalize_if < 0;
    const bool leading = f->experts.is && f->experts.layers.kind == TSR_MODEL_LAYERS_FROM;
    const struct {
        const char *key;
        double      harmless;
        bool        read;
    } strange[] = { { "expert_count", 0.0, f->experts.is },
                    { "expert_shared_count", 0.0, f->experts.shared },
                    { "expert_shared_feed_forward_length", 0.0, false },
                    { "expert_group_count", 0.0, f->experts.grouped },
                    { "expert_weights_scale", 1.0, f->experts.scale.n_keys > 0 },
                    { "expert_weights_norm", whole ? 0.0 : 1.0, false },
                    { "expert_gating_func", sigmoid ? 2.0 : 1.0, false }, /* 1: softmax */
                    { "leading_dense_block_count", 0.0, leading },
                    { "nextn_predict_layers", 0.0, false },
                    { "moe_every_n_layers", 0.0, false },
                    { "interleave_moe_layer_step", 0.0, false },
                    { "logit_scale", 1.0, false },
                    { "residual_scale", 1.0, false },
                    { "embedding_scale", 1.0, false },
                    { "attention.scale", 0.0, false },
                    { "attention.temperature_scale", 0.0, false },
                    { "attention.max_alibi_bias", 8.0, false },
                    { "attention.clamp_kqv", 0.0, false },
                    { "attention.causal", 1.0, false },
                    { "use_parallel_residual", 0.0, false } };
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        if (tsr_gguf_config_takes(o, strange[i].key) || strange[i].read)
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

/* Some writers store a window that llama.cpp does not look at for their architecture: a model with
 * it would not be the one that runs there. */
static tsr_status leave_window(struct tsr_gguf_config_out *o)
{
    int64_t window = 0;
    if (tsr_gguf_config_takes(o, "attention.sliding_window"))
        return TSR_OK;
    TSR_TRY(tsr_gguf_config_int(o, "attention.sliding_window", false, &window));
    if (window > 0)
        tsr_logf(TSR_LOG_WARN,
                 "%s: \"%s.attention.sliding_window\" is %lld; llama.cpp has no window for this "
                 "architecture, and here too attention is over the whole context: texts of more "
                 "than %lld tokens run unlike the original model",
                 o->g->path, o->arch, (long long)window, (long long)window);
    return TSR_OK;
}

/* Whether a list like "llama, qwen2" has the word: two families may read one architecture. */
static bool is_in(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* The family that reads the architecture; config.json will name it by its first entry of `architectures`, and
 * so must lead to the same one. */
static tsr_status find_family(struct tsr_gguf_config_out *o)
{
    const struct tsr_model_family *again, *one;
    char                           known[600] = "";
    size_t                         at = 0;
    int64_t                        experts = 0, gating = 0, window = 0;
    TSR_TRY(tsr_gguf_config_int(o, "attention.sliding_window", false, &window));
    TSR_TRY(tsr_gguf_config_int(o, "expert_count", false, &experts));
    TSR_TRY(tsr_gguf_config_int(o, "expert_gating_func", false, &gating));
    TSR_TRY(tsr_model_family_find_gguf(&o->f, o->arch,
                                       experts == 0  ? TSR_MODEL_GGUF_DENSE
                                       : gating == 2 ? TSR_MODEL_GGUF_SIGMOID
                                                     : TSR_MODEL_GGUF_EXPERTS,
                                       window > 0, o->err));
    if (o->f) {
        TSR_TRY(tsr_model_family_find(&again, o->f->architectures[0], NULL, o->err));
        if (again == o->f)
            return TSR_OK;
        return tsr_fail(
            o->err, TSR_E_INPUT,
            "%s: the architecture \"%.40s\" is read as the family %s, but the family %s "
            "of %s is for its %s; add `gguf: {architectures: [%.40s]}` there",
            o->g->path, o->arch, o->f->name, again->name, tsr_config_doc_path(again->doc),
            o->f->architectures[0], o->arch);
    }
    for (uint64_t i = 0;; i++) {
        TSR_TRY(tsr_model_family_at(i, &one, o->err));
        if (!one)
            break;
        for (const char *const *a = one->gguf.architectures; *a && at < sizeof known; a++)
            if (!is_in(known, *a))
                at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", *a);
    }
    return tsr_fail(o->err, TSR_E_INPUT,
                    "%s: the architecture \"%.40s\" is not supported; of GGUF files %s are; "
                    "--family FILE adds one",
                    o->g->path, o->arch, known);
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
    int64_t heads = 1, head_dim = 1;
    TSR_TRY(find_family(o));
    const struct tsr_model_family *f = o->f;
    const struct tsr_model_role   *role = tsr_gguf_role(f, TSR_MODEL_PART_EMBED);
    const struct tsr_gguf_tensor  *embed = tsr_gguf_of_role(o->g, role, 0);
    const struct tsr_model_role   *head = tsr_gguf_role(f, TSR_MODEL_PART_HEAD);
    if (!embed || embed->rank != 2)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: the matrix \"%s.weight\" is missing", o->g->path,
                        role->gguf);
    TSR_TRY(refuse_strange(o));
    TSR_TRY(tsr_gguf_config_put(o, "architectures", json_pack("[s]", f->architectures[0])));
    TSR_TRY(tsr_gguf_config_put(o, "model_type", json_string(f->model_types[0])));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->vocab, json_integer((json_int_t)embed->dims[1])));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->tied, json_boolean(!tsr_gguf_of_role(o->g, head, 0))));
    TSR_TRY(token_ids(o));
    TSR_TRY(leave_window(o));
    TSR_TRY(tsr_gguf_config_sizes(o, &heads, &head_dim));
    if (f->position_form == TSR_MODEL_POSITIONS_ROPE)
        TSR_TRY(tsr_gguf_config_rope(o, head_dim));
    TSR_TRY(tsr_gguf_config_delta(o));
    return tsr_gguf_config_family(o, heads, head_dim);
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
