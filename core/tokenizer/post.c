/* post.c - what goes around the text: BOS, EOS and the like, as the template says. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

void tok_template_free(struct tok_template *p)
{
    free(p->slot);
    tsr_tokenizer_ids_free(&p->ids);
    memset(p, 0, sizeof *p);
}

static tsr_status add_slot(struct tok_template *p, bool text, uint32_t n_ids, struct tsr_err *err)
{
    struct tok_slot *v = tsr_renew(p->slot, (uint64_t)p->n + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, sizeof *v, "a template");
    p->slot = v;
    v[p->n++] = (struct tok_slot){ text, (uint32_t)p->ids.n - n_ids, n_ids };
    return TSR_OK;
}

static tsr_status push_id(struct tsr_tokenizer *t, int64_t id, struct tsr_err *err)
{
    if (id < 0 || id >= TOK_MAX_IDS)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the post-processor uses the id %lld, which is not "
                        "from 0 to %u",
                        t->name, (long long)id, TOK_MAX_IDS - 1);
    return tsr_tokenizer_ids_push(&t->post.ids, (uint32_t)id, err);
}

static tsr_status special(struct tsr_tokenizer *t, const json_t *piece, const json_t *specials,
                          struct tsr_err *err)
{
    const char *id = NULL;
    json_t     *ids;
    TSR_TRY(tsr_json_str(piece, t->name, "id", true, &id, err));
    const json_t *tok = json_object_get(specials, id);
    if (!json_is_object(tok))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the template uses \"%.80s\", which is not in its "
                        "\"special_tokens\"",
                        t->name, id);
    TSR_TRY(tsr_json_sub(tok, t->name, "ids", true, JSON_ARRAY, &ids, err));
    size_t n = json_array_size(ids);
    if (n > 1024)
        return tsr_fail(err, TSR_E_INPUT, "%s: the template's \"%.80s\" has more than 1024 ids",
                        t->name, id);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(ids, i);
        TSR_TRY(push_id(t, json_is_integer(v) ? json_integer_value(v) : -1, err));
    }
    return add_slot(&t->post, false, (uint32_t)n, err);
}

static tsr_status load_template(struct tsr_tokenizer *t, const json_t *j, struct tsr_err *err)
{
    json_t *single, *specials;
    TSR_TRY(tsr_json_sub(j, t->name, "single", true, JSON_ARRAY, &single, err));
    TSR_TRY(tsr_json_sub(j, t->name, "special_tokens", true, JSON_OBJECT, &specials, err));
    if (json_array_size(single) > 256)
        return tsr_fail(err, TSR_E_INPUT, "%s: the template has more than 256 pieces", t->name);
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *seq = json_object_get(piece, "Sequence");
        const json_t *tok = json_object_get(piece, "SpecialToken");
        if (seq) {
            const char *id = NULL;
            TSR_TRY(tsr_json_str(seq, t->name, "id", true, &id, err));
            if (strcmp(id, "A") != 0)
                return tsr_fail(err, TSR_E_INPUT,
                                "%s: the template of a single text uses the "
                                "sequence \"%.20s\"; only \"A\" exists",
                                t->name, id);
            TSR_TRY(add_slot(&t->post, true, 0, err));
        } else if (tok) {
            TSR_TRY(special(t, tok, specials, err));
        } else {
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: piece %zu of the template is neither Sequence "
                            "nor SpecialToken",
                            t->name, i);
        }
    }
    return TSR_OK;
}

/* "cls": ["[CLS]", 101] */
static tsr_status pair_id(struct tsr_tokenizer *t, const json_t *j, const char *key,
                          struct tsr_err *err)
{
    json_t *pair;
    TSR_TRY(tsr_json_sub(j, t->name, key, true, JSON_ARRAY, &pair, err));
    const json_t *id = json_array_get(pair, 1);
    TSR_TRY(push_id(t, json_is_integer(id) ? json_integer_value(id) : -1, err));
    return add_slot(&t->post, false, 1, err);
}

static tsr_status load(struct tsr_tokenizer *t, const json_t *j, unsigned depth,
                       struct tsr_err *err)
{
    const char *type = NULL;
    if (!json_is_object(j) || depth > TOK_MAX_DEPTH)
        return tsr_fail(err, TSR_E_INPUT, "%s: a post-processor is not an object", t->name);
    TSR_TRY(tsr_json_str(j, t->name, "type", true, &type, err));
    if (strcmp(type, "Sequence") == 0) {
        json_t *list;
        TSR_TRY(tsr_json_sub(j, t->name, "processors", true, JSON_ARRAY, &list, err));
        for (size_t i = 0; i < json_array_size(list); i++)
            TSR_TRY(load(t, json_array_get(list, i), depth + 1, err));
        return TSR_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) /* trims offsets, which are not kept here */
        return TSR_OK;
    bool template = strcmp(type, "TemplateProcessing") == 0;
    if (!template && strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: the post-processor \"%s\" is not supported", t->name,
                        type);
    if (t->post.set)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: a second post-processor that adds tokens "
                        "(%s) is not supported",
                        t->name, type);
    t->post.set = true;
    if (template)
        return load_template(t, j, err);
    TSR_TRY(pair_id(t, j, "cls", err));
    TSR_TRY(add_slot(&t->post, true, 0, err));
    return pair_id(t, j, "sep", err);
}

tsr_status tok_post_load(struct tsr_tokenizer *t, const json_t *post, struct tsr_err *err)
{
    return !post || json_is_null(post) ? TSR_OK : load(t, post, 0, err);
}

/* A token named in tokenizer_config.json, as a string or as {"content": ...}. */
static tsr_status config_token(struct tsr_tokenizer *t, const char *name, const json_t *config,
                               const char *key, struct tsr_err *err)
{
    const json_t *j = json_object_get(config, key);
    if (json_is_object(j))
        j = json_object_get(j, "content");
    int64_t id = -1;
    if (json_is_string(j)) {
        id = tok_strmap_get(&t->added_map, json_string_value(j), json_string_length(j));
        id = id >= 0 ? (int64_t)t->added[id].id
                     : tok_strmap_get(&t->vocab, json_string_value(j), json_string_length(j));
    }
    if (id < 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" is requested and is not a token of %s", name,
                        key, t->name);
    TSR_TRY(tsr_tokenizer_ids_push(&t->post.ids, (uint32_t)id, err));
    return add_slot(&t->post, false, 1, err);
}

tsr_status tok_post_config(struct tsr_tokenizer *t, const char *name, const json_t *config,
                           struct tsr_err *err)
{
    bool bos = false, eos = false;
    const char *class = NULL;
    if (!json_is_object(config))
        return tsr_fail(err, TSR_E_INPUT, "%s: not a JSON object", name);
    TSR_TRY(tsr_json_str(config, name, "tokenizer_class", false, &class, err));
    if (t->post.set || !class ||
        (strncmp(class, "LlamaTokenizer", 14) != 0 && strncmp(class, "GemmaTokenizer", 14) != 0 &&
         strncmp(class, "CodeLlamaTokenizer", 18) != 0))
        return TSR_OK;
    TSR_TRY(tsr_json_bool(config, name, "add_bos_token", false, &bos, err));
    TSR_TRY(tsr_json_bool(config, name, "add_eos_token", false, &eos, err));
    if (!bos && !eos)
        return TSR_OK;
    t->post.set = true;
    if (bos)
        TSR_TRY(config_token(t, name, config, "bos_token", err));
    TSR_TRY(add_slot(&t->post, true, 0, err));
    return eos ? config_token(t, name, config, "eos_token", err) : TSR_OK;
}

tsr_status tok_post_run(const struct tok_template *p, const struct tsr_tokenizer_ids *text,
                        bool add, struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    static const struct tok_slot plain = { .text = true };
    const struct tok_slot       *slot = p->set ? p->slot : &plain;
    uint32_t                     n = p->set ? p->n : 1;
    for (uint32_t i = 0; i < n; i++) {
        if (slot[i].text)
            for (uint64_t k = 0; k < text->n; k++)
                TSR_TRY(tsr_tokenizer_ids_push(ids, text->v[k], err));
        else
            for (uint32_t k = 0; add && k < slot[i].n; k++)
                TSR_TRY(tsr_tokenizer_ids_push(ids, p->ids.v[slot[i].first + k], err));
    }
    return TSR_OK;
}
