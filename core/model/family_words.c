/* Words, lists, flags and values of a family file. */
#include "model/family_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tsr_choice form_words[] = {
    { "inverse", "1 / v", TSR_MODEL_VALUE_INVERSE },
    { "inverse_root", "1 / sqrt(v)", TSR_MODEL_VALUE_INVERSE_ROOT },
    { "root", "sqrt(v)", TSR_MODEL_VALUE_ROOT },
    { "of_hidden", "v * hidden", TSR_MODEL_VALUE_OF_HIDDEN },
    { "root_of_hidden", "sqrt(hidden)", TSR_MODEL_VALUE_ROOT_OF_HIDDEN }
};

const char *tsr_family_some(const char *s)
{
    return s && *s ? s : NULL;
}

bool tsr_family_word(struct tsr_family_reading *r, const struct tsr_config_node *n,
                     const char *what, const struct tsr_choice *of, size_t n_of, int64_t *v)
{
    const char *names[16] = { NULL };
    for (size_t i = 0; i < n_of && i < TSR_COUNT(names); i++) {
        names[i] = of[i].name;
        if (n->kind == TSR_CONFIG_NODE_SCALAR && strcmp(n->text, of[i].name) == 0) {
            *v = of[i].value;
            return true;
        }
    }
    const char *near =
        n->kind == TSR_CONFIG_NODE_SCALAR ? tsr_config_nearest(n->text, names, n_of) : NULL;
    char   hint[120], list[200];
    size_t at = 0;
    for (size_t i = 0; i < n_of && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "");
    tsr_config_diag_error(r->d, &n->mark, near ? hint : NULL, "'%s' must be one of %s", what, list);
    return false;
}

/* A scalar or a list of them. */
void tsr_family_strings(struct tsr_family_reading *r, const struct tsr_config_node *n,
                        const char *what, const char **out, size_t cap)
{
    if (!n)
        return;
    uint64_t count = n->kind == TSR_CONFIG_NODE_LIST ? n->n : 1;
    if (count >= cap) {
        tsr_config_diag_error(r->d, &n->mark, NULL, "%s has %llu entries, at most %zu are possible",
                              what, (unsigned long long)count, cap - 1);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const struct tsr_config_node *one = n->kind == TSR_CONFIG_NODE_LIST ? n->items[i] : n;
        if (one->kind != TSR_CONFIG_NODE_SCALAR)
            tsr_config_diag_error(r->d, &one->mark, NULL, "%s holds something else than names",
                                  what);
        out[i] = one->kind == TSR_CONFIG_NODE_SCALAR ? one->text : "";
    }
}

static int flag_at(const struct tsr_family_reading *r, const char *name)
{
    for (unsigned i = 0; i < r->f->n_flags; i++)
        if (strcmp(r->f->flag[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* -1 for "". */
int tsr_family_flag(struct tsr_family_reading *r, const struct tsr_config_mark *at,
                    const char *name)
{
    int i = name && *name ? flag_at(r, name) : -1;
    if (name && *name && i < 0)
        tsr_config_diag_error(r->d, at, "define it under flags", "there is no flag '%s'", name);
    return i;
}

bool tsr_family_number(struct tsr_family_reading *r, const struct tsr_config_node *n,
                       const char *what, double *v)
{
    char *end = NULL;
    if (n->kind == TSR_CONFIG_NODE_SCALAR && !n->quoted) {
        if (strcmp(n->text, "true") == 0 || strcmp(n->text, "false") == 0) {
            *v = n->text[0] == 't';
            return true;
        }
        *v = strtod(n->text, &end);
    }
    if (end && end != n->text && !*end && isfinite(*v))
        return true;
    tsr_config_diag_error(r->d, &n->mark, NULL, "%s is not a number", what);
    return false;
}

/* One or two words, of false and true. */
static void flag_words(struct tsr_family_reading *r, const struct tsr_config_node *n,
                       struct tsr_model_flag *f)
{
    const char *words[TSR_COUNT(f->words) + 2] = { 0 };
    if (!n)
        return;
    tsr_family_strings(r, n, "words", words, TSR_COUNT(words));
    if (!words[0] || !*words[0] || words[TSR_COUNT(f->words)])
        tsr_config_diag_error(r->d, &n->mark, "as in [greedy, group_limited_greedy]",
                              "'words' of flag '%s' are not those of false and true", f->name);
    f->words[0] = words[0];
    f->words[1] = words[1];
}

void tsr_family_flags(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    if (map && map->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(r->d, &map->mark, NULL, "flags is not a mapping");
        return;
    }
    for (uint64_t i = 0; map && i < map->n; i++) {
        const struct tsr_config_node *v = map->items[i], *of = v;
        struct tsr_model_flag         f = { .name = map->keys[i]->text };
        double                        def = 0;
        if (r->f->n_flags == TSR_FAMILY_FLAGS) {
            tsr_config_diag_error(r->d, &v->mark, NULL, "more than %d flags", TSR_FAMILY_FLAGS);
            return;
        }
        if (v->kind == TSR_CONFIG_NODE_MAP) {
            of = tsr_config_node_get(v, "key");
            const struct tsr_config_node *d = tsr_config_node_get(v, "default");
            const struct tsr_config_node *w = tsr_config_node_get(v, "words");
            for (uint64_t k = 0; k < v->n; k++)
                if (strcmp(v->keys[k]->text, "key") != 0 &&
                    strcmp(v->keys[k]->text, "default") != 0 &&
                    strcmp(v->keys[k]->text, "words") != 0)
                    tsr_config_diag_error(r->d, &v->keys[k]->mark, NULL,
                                          "unknown key '%s' in flag '%s'; it has key, default and "
                                          "words",
                                          v->keys[k]->text, f.name);
            flag_words(r, w, &f);
            if (d && tsr_family_number(r, d, "default", &def) && def != 0 && def != 1)
                tsr_config_diag_error(r->d, &d->mark, NULL,
                                      "the default of a flag is true or false");
        }
        if (!of || of->kind != TSR_CONFIG_NODE_SCALAR) {
            tsr_config_diag_error(r->d, &v->mark, "as in {key: attention_bias, default: false}",
                                  "flag '%s' names no key of config.json", f.name);
            continue;
        }
        f.key = of->text;
        f.def = def != 0;
        if (f.def && f.words[0] && !f.words[1])
            tsr_config_diag_error(r->d, &v->mark, NULL,
                                  "flag '%s' has no word for its default true", f.name);
        r->f->flag[r->f->n_flags++] = f;
    }
}

/* Counts the keys; each must be a word. */
static void count_keys(struct tsr_family_reading *r, const struct tsr_config_node *n,
                       const char *what, struct tsr_model_value *v)
{
    for (v->n_keys = 0; v->n_keys < TSR_FAMILY_KEYS && v->keys[v->n_keys]; v->n_keys++) {
        const char *k = v->keys[v->n_keys];
        bool        is = *k == '_' || (*k >= 'a' && *k <= 'z') || (*k >= 'A' && *k <= 'Z');
        for (const char *c = k; is && *c; c++)
            is = *c == '_' || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                 (*c >= '0' && *c <= '9');
        if (!is)
            tsr_config_diag_error(r->d, &n->mark, "a value without a key is {default: ...}",
                                  "'%s' of '%s' is not a key of config.json", k, what);
    }
}

/* KEY, [KEY, ...] or {key, default, null, form} over what v holds. */
void tsr_family_value(struct tsr_family_reading *r, const struct tsr_config_node *n,
                      const char *what, bool is_word, struct tsr_model_value *v)
{
    static const char *const names[] = { "key", "default", "null", "form" };
    if (!n)
        return;
    v->at = &n->mark;
    if (n->kind != TSR_CONFIG_NODE_MAP) {
        memset(v->keys, 0, sizeof v->keys);
        tsr_family_strings(r, n, what, v->keys, TSR_FAMILY_KEYS);
        count_keys(r, n, what, v);
        return;
    }
    const struct tsr_config_node *key = tsr_config_node_get(n, "key");
    const struct tsr_config_node *def = tsr_config_node_get(n, "default");
    const struct tsr_config_node *null = tsr_config_node_get(n, "null");
    const struct tsr_config_node *form = tsr_config_node_get(n, "form");
    for (uint64_t i = 0; i < n->n; i++) {
        bool known = false;
        for (size_t k = 0; k < TSR_COUNT(names); k++)
            known = known || strcmp(n->keys[i]->text, names[k]) == 0;
        if (!known) {
            const char *near = tsr_config_nearest(n->keys[i]->text, names, TSR_COUNT(names));
            char        hint[80];
            (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "key");
            tsr_config_diag_error(r->d, &n->keys[i]->mark, hint, "unknown key '%s' in '%s'",
                                  n->keys[i]->text, what);
        }
    }
    v->n_keys = 0;
    memset(v->keys, 0, sizeof v->keys);
    if (key) {
        tsr_family_strings(r, key, what, v->keys, TSR_FAMILY_KEYS);
        count_keys(r, key, what, v);
    }
    if (def && is_word)
        v->word = def->kind == TSR_CONFIG_NODE_SCALAR ? def->text : NULL;
    else if (def)
        v->has_def = tsr_family_number(r, def, "default", &v->def);
    if (null)
        v->has_null = tsr_family_number(r, null, "null", &v->null_value);
    int64_t f = TSR_MODEL_VALUE_AS_IT_IS;
    if (form && tsr_family_word(r, form, "form", form_words, TSR_COUNT(form_words), &f))
        v->form = (enum tsr_model_value_form)f;
    if (!key && !def && !form)
        tsr_config_diag_error(r->d, &n->mark, NULL, "'%s' has neither key nor default", what);
}
