/* fields.c - members that components of tokenizer.json have in common. */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

tsr_status tok_load_text(const json_t *j, const char *name, const char *key, char **s, uint64_t *n,
                         struct tsr_err *err)
{
    bool          optional = key[0] == '?';
    const char   *k = key + optional;
    const json_t *v = json_object_get(j, k);
    if (optional && (!v || json_is_null(v)))
        return TSR_OK;
    if (!json_is_string(v))
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" is %s", name, k,
                        v ? "not a string" : "missing");
    *n = json_string_length(v);
    *s = tsr_new(*n + 1, 1);
    if (!*s)
        return tsr_fail_nomem(err, *n, k);
    memcpy(*s, json_string_value(v), *n);
    return TSR_OK;
}

tsr_status tok_load_char(const json_t *j, const char *name, const char *key, uint32_t *c,
                         struct tsr_err *err)
{
    const json_t *v = json_object_get(j, key);
    unsigned      len = 0;
    if (json_is_string(v) && json_string_length(v))
        *c = tok_char(json_string_value(v), json_string_length(v), &len);
    if (!len || len != json_string_length(v))
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" is not one character", name, key);
    return TSR_OK;
}

tsr_status tok_load_pattern(struct tok_pattern *p, const char *name, const json_t *j,
                            struct tsr_err *err)
{
    json_t *o;
    TSR_TRY(tsr_json_sub(j, name, "pattern", true, JSON_OBJECT, &o, err));
    const json_t *s = json_object_get(o, "String"), *r = json_object_get(o, "Regex");
    const json_t *v = s ? s : r;
    if (!json_is_string(v) || (s && r))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"pattern\" is neither {\"String\": ...} nor {\"Regex\": ...}", name);
    uint64_t n = json_string_length(v); /* an empty string matches between all characters */
    p->empty = n == 0;
    return tok_pattern_init(p, name, json_string_value(v), n, !s || n == 0, err);
}

tsr_status tok_load_metaspace(struct tok_part *p, const char *name, const json_t *j,
                              struct tsr_err *err)
{
    static const char *const schemes[] = { "always", "first", "never" };
    const char              *scheme = NULL;
    bool                     prefix = true, known = false;
    char                     b[4];
    p->split = true;
    p->scheme = TOK_ALWAYS;
    TSR_TRY(tok_load_char(j, name, "replacement", &p->c, err));
    TSR_TRY(tsr_json_bool(j, name, "split", false, &p->split, err));
    TSR_TRY(tsr_json_bool(j, name, "add_prefix_space", false, &prefix, err));
    TSR_TRY(tsr_json_str(j, name, "prepend_scheme", false, &scheme, err));
    for (unsigned i = 0; scheme && i < 3; i++) {
        if (strcmp(scheme, schemes[i]) == 0) {
            p->scheme = (enum tok_scheme)i;
            known = true;
        }
    }
    if (scheme && !known)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"prepend_scheme\": \"%.40s\" is not always, first "
                        "or never",
                        name, scheme);
    if (!prefix && scheme && p->scheme != TOK_NEVER)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"add_prefix_space\" is false and "
                        "\"prepend_scheme\" is \"%s\"",
                        name, scheme);
    if (!prefix)
        p->scheme = TOK_NEVER;
    p->n_text = tok_put_char(b, p->c);
    p->text = tsr_new(p->n_text + 1, 1);
    if (!p->text)
        return tsr_fail_nomem(err, p->n_text, "a replacement");
    memcpy(p->text, b, p->n_text);
    return TSR_OK;
}

void tok_parts_free(struct tok_parts *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        tok_pattern_free(&p->v[i].pattern);
        free(p->v[i].text);
        tok_charsmap_free(p->v[i].map);
    }
    free(p->v);
    memset(p, 0, sizeof *p);
}
