/* load.c - tokenizer.json: its components, and the table of tokens by id. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- chains of components ---------------------------------------------- */

typedef tsr_status (*part_add)(struct tok_part *part, const char *name, const char *type,
                               const json_t *j, struct tsr_err *err);

static tsr_status parts_walk(struct tok_parts *p, const char *name, const char *key,
                             const char *list, const json_t *j, part_add add, unsigned depth,
                             struct tsr_err *err)
{
    const char *type = NULL;
    if (!json_is_object(j) || depth > TOK_MAX_DEPTH)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" holds something that is not an object", name,
                        key);
    TSR_TRY(tsr_json_str(j, name, "type", true, &type, err));
    if (strcmp(type, "Sequence") == 0) {
        json_t *items;
        TSR_TRY(tsr_json_sub(j, name, list, true, JSON_ARRAY, &items, err));
        for (size_t i = 0; i < json_array_size(items); i++)
            TSR_TRY(parts_walk(p, name, key, list, json_array_get(items, i), add, depth + 1, err));
        return TSR_OK;
    }
    if (p->n == TOK_MAX_PARTS)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" has more than %u components", name, key,
                        TOK_MAX_PARTS);
    if (p->n == p->cap) {
        uint32_t         cap = p->cap ? p->cap * 2 : 4;
        struct tok_part *v = tsr_renew(p->v, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, key);
        p->v = v;
        p->cap = cap;
    }
    memset(&p->v[p->n], 0, sizeof *p->v);
    return add(&p->v[p->n++], name, type, j, err); /* freed with the rest when it fails */
}

/* Walks an object or a (nested) Sequence and calls add() for each component in order. */
static tsr_status parts_load(struct tok_parts *p, const char *name, const char *key,
                             const char *list, const json_t *j, part_add add, struct tsr_err *err)
{
    return !j || json_is_null(j) ? TSR_OK : parts_walk(p, name, key, list, j, add, 0, err);
}

/* ---- the file ---------------------------------------------------------- */

static tsr_status load_model(struct tsr_tokenizer *t, const json_t *model, struct tsr_err *err)
{
    const char *type = NULL;
    TSR_TRY(tsr_json_str(model, t->name, "type", false, &type, err));
    if (!type) /* files from before the tag: Unigram's vocabulary is a list */
        type = json_is_array(json_object_get(model, "vocab")) ? "Unigram" : "BPE";
    if (strcmp(type, "BPE") == 0) {
        t->model = TOK_BPE;
        TSR_TRY(tok_bpe_load(t, model, err));
    } else if (strcmp(type, "Unigram") == 0) {
        t->model = TOK_UNIGRAM;
        TSR_TRY(tok_unigram_load(t, model, err));
    } else {
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the tokenizer model \"%s\" is not supported; "
                        "BPE and Unigram are",
                        t->name, type);
    }
    unsigned missing = 0;
    for (unsigned b = 0; b < 256; b++) {
        char token[8];
        (void)snprintf(token, sizeof token, "<0x%02X>", b);
        int64_t id = tok_strmap_get(&t->vocab, token, 6);
        t->byte_id[b] = (int32_t)id;
        missing += id < 0;
    }
    bool unk = t->model == TOK_BPE ? t->bpe.unk != NULL : t->unigram.unk_id >= 0;
    if (t->byte_fallback && missing && !unk)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"byte_fallback\" is set, %u of the tokens <0x00> "
                        "to <0xFF> are missing, and there is no unknown token",
                        t->name, missing);
    return TSR_OK;
}

/* Tokens by id.  An added token shows its normalized form, as the reference decodes it. */
static tsr_status index_tokens(struct tsr_tokenizer *t, struct tsr_err *err)
{
    uint32_t max = t->model == TOK_UNIGRAM ? t->n_vocab : 0;
    for (uint32_t i = 0; i < t->vocab.n; i++)
        max = t->vocab.entry[i].value >= max ? t->vocab.entry[i].value + 1 : max;
    for (uint32_t i = 0; i < t->n_added; i++)
        max = t->added[i].id >= max ? t->added[i].id + 1 : max;
    t->token = tsr_new(max, sizeof *t->token);
    if (!t->token)
        return tsr_fail_nomem(err, max * sizeof *t->token, "a vocabulary");
    t->n_token = max;
    for (uint32_t i = 0; i < t->vocab.n; i++) {
        const struct tok_entry *e = &t->vocab.entry[i];
        struct tok_token       *k = &t->token[e->value];
        if (k->s)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: the tokens \"%.80s\" and \"%.*s\" have the same "
                            "id %u",
                            t->name, k->s, e->len > 80 ? 80 : (int)e->len, t->vocab.bytes + e->at,
                            e->value);
        k->s = t->vocab.bytes + e->at;
        k->n = e->len;
    }
    if (t->model == TOK_UNIGRAM && t->vocab.n < t->n_vocab)
        return tsr_fail(err, TSR_E_INPUT, "%s: %u tokens of \"vocab\" are there twice", t->name,
                        t->n_vocab - t->vocab.n);
    for (uint32_t i = 0; i < t->n_added; i++) {
        const struct tok_added *a = &t->added[i];
        struct tok_token       *k = &t->token[a->id];
        k->s = a->normal ? a->normal : a->content;
        k->n = a->normal ? a->n_normal : a->n;
        k->special = a->special;
    }
    for (uint32_t i = 0; i < t->n_added; i++) { /* skipped by its text, as there */
        struct tok_token *k = &t->token[t->added[i].id];
        int64_t           a = tok_strmap_get(&t->added_map, k->s, k->n);
        k->skip = a >= 0 && t->added[a].special;
    }
    return TSR_OK;
}

static tsr_status load(struct tsr_tokenizer *t, const json_t *j, struct tsr_err *err)
{
    json_t     *model, *added;
    const char *version = NULL;
    if (!json_is_object(j))
        return tsr_fail(err, TSR_E_INPUT, "%s: not a JSON object", t->name);
    TSR_TRY(tsr_json_str(j, t->name, "version", false, &version, err));
    if (version && strcmp(version, "1.0") != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"version\" is \"%.20s\"; \"1.0\" is known", t->name,
                        version);
    TSR_TRY(tsr_json_sub(j, t->name, "model", true, JSON_OBJECT, &model, err));
    TSR_TRY(load_model(t, model, err));
    TSR_TRY(parts_load(&t->norm, t->name, "normalizer", "normalizers",
                       json_object_get(j, "normalizer"), tok_norm_add, err));
    TSR_TRY(parts_load(&t->pre, t->name, "pre_tokenizer", "pretokenizers",
                       json_object_get(j, "pre_tokenizer"), tok_pre_add, err));
    const json_t *dec = json_object_get(j, "decoder");
    t->has_dec = dec && !json_is_null(dec);
    TSR_TRY(parts_load(&t->dec, t->name, "decoder", "decoders", dec, tok_dec_add, err));
    TSR_TRY(tsr_json_sub(j, t->name, "added_tokens", false, JSON_ARRAY, &added, err));
    TSR_TRY(tok_added_load(t, added, err));
    TSR_TRY(index_tokens(t, err));
    return tok_post_load(t, json_object_get(j, "post_processor"), err);
}

static tsr_status parse_config(struct tsr_tokenizer *t, const char *config, uint64_t len,
                               struct tsr_err *err)
{
    static const char name[] = "tokenizer_config.json";
    json_t           *j = NULL;
    TSR_TRY(tsr_json_parse(&j, name, config, len, 64, err));
    tsr_status st = tok_post_config(t, name, j, err);
    json_decref(j);
    return st;
}

tsr_status tsr_tokenizer_parse(struct tsr_tokenizer **out, const char *name, const char *json,
                               uint64_t len, const char *config, uint64_t config_len,
                               struct tsr_err *err)
{
    if (len > TOK_MAX_FILE)
        return tsr_fail(err, TSR_E_INPUT, "%s: larger than 256 MiB", name);
    struct tsr_tokenizer *t = tsr_new(1, sizeof *t);
    json_t               *j = NULL;
    if (!t)
        return tsr_fail_nomem(err, sizeof *t, "a tokenizer");
    t->name = tsr_strdup(name);
    tsr_status st = t->name ? TSR_OK : tsr_fail_nomem(err, strlen(name), "a name");
    if (st == TSR_OK)
        st = tsr_json_parse(&j, name, json, len, TOK_MAX_DEPTH, err);
    if (st == TSR_OK)
        st = load(t, j, err);
    json_decref(j);
    if (st == TSR_OK && config)
        st = parse_config(t, config, config_len, err);
    if (st != TSR_OK) {
        tsr_tokenizer_destroy(t);
        return st;
    }
    tsr_hash_bytes(json, len, t->hash);
    *out = t;
    return TSR_OK;
}
