/* The key `ends`, and the rules of a plan file for embedding and head: candidates of both. */
#include "planning/planning.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define TEXT TSR_PLANNING_TEXT

static tsr_status take(struct tsr_planning *pl, const char *text, struct tsr_err *err)
{
    char **v = tsr_renew(pl->ends, pl->n_ends + 1, sizeof *v);
    if (v)
        pl->ends = v;
    if (!v || !(v[pl->n_ends] = tsr_strdup(text)))
        return tsr_fail_nomem(err, strlen(text), "candidates of the ends");
    pl->n_ends++;
    pl->options.ends = (const char *const *)pl->ends;
    pl->options.n_ends = pl->n_ends;
    return TSR_OK;
}

/* "rtn-8" is rtn:bits=8. */
static void spell_out(const char *name, char text[TEXT])
{
    const char *dash = strrchr(name, '-');
    size_t      digits = dash ? strspn(dash + 1, "0123456789") : 0;
    if (dash && digits && !dash[1 + digits] && !strchr(name, ':'))
        (void)snprintf(text, TEXT, "%.*s:bits=%s", (int)(dash - name < 100 ? dash - name : 100),
                       name, dash + 1);
    else
        (void)snprintf(text, TEXT, "%.300s", name);
}

static tsr_status add(struct tsr_planning *pl, struct tsr_registry *r, const char *text,
                      const struct tsr_config_node *at, struct tsr_diag *d, struct tsr_err *err)
{
    for (uint64_t i = 0; i < pl->n_ends; i++)
        if (strcmp(pl->ends[i], text) == 0) {
            tsr_config_diag_error(d, &at->mark, "keep one of them", "'%.80s' comes twice in 'ends'",
                                  text);
            return TSR_OK;
        }
    TSR_TRY(tsr_planning_try(r, text, at, d, err));
    return take(pl, text, err);
}

/* "use: rtn, bits: 8" as "rtn:bits=8"; false after an error. */
static bool text_of(const struct tsr_config_node *map, const char *use, char text[TEXT],
                    struct tsr_diag *d)
{
    const struct tsr_config_node *own = tsr_config_node_get(map, "use");
    size_t                        at;
    uint64_t                      n = 0;
    if (own && own->kind == TSR_CONFIG_NODE_SCALAR)
        use = own->text;
    at = (size_t)snprintf(text, TEXT, "%.100s", use);
    for (uint64_t i = 0; i < map->n; i++) {
        const char                   *key = map->keys[i]->text;
        const struct tsr_config_node *v = map->items[i];
        if (strcmp(key, "use") == 0 || strcmp(key, "tensors") == 0)
            continue;
        if (v->kind != TSR_CONFIG_NODE_SCALAR || strchr(v->text, ',') ||
            at + strlen(key) + strlen(v->text) + 3 > TEXT) {
            tsr_config_diag_error(d, &v->mark, NULL, "'%.60s' is not one short value", key);
            return false;
        }
        at += (size_t)snprintf(text + at, TEXT - at, "%c%s=%s", n++ ? ',' : ':', key, v->text);
    }
    return true;
}

tsr_status tsr_planning_ends(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                             const struct tsr_config_node *list, struct tsr_diag *d,
                             struct tsr_err *err)
{
    char text[TEXT];
    if (!list || list->kind == TSR_CONFIG_NODE_NULL)
        return TSR_OK;
    for (const char *s = list->kind == TSR_CONFIG_NODE_SCALAR ? list->text : ""; *s;) {
        size_t n = strcspn(s, ",");
        char   one[200];
        (void)snprintf(one, sizeof one, "%.*s", (int)(n < 199 ? n : 199), s);
        spell_out(one, text);
        TSR_TRY(add(pl, job->registry, text, list, d, err));
        s += n + (s[n] == ',');
    }
    if (list->kind != TSR_CONFIG_NODE_SCALAR && (list->kind != TSR_CONFIG_NODE_LIST || !list->n))
        tsr_config_diag_error(d, &list->mark, "write ends: [original, rtn-8]", "'ends' is %s",
                              list->kind == TSR_CONFIG_NODE_LIST ? "an empty list" : "not a list");
    for (uint64_t i = 0; list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *item = list->items[i];
        if (item->kind == TSR_CONFIG_NODE_SCALAR)
            spell_out(item->text, text);
        else if (item->kind != TSR_CONFIG_NODE_MAP || !tsr_config_node_get(item, "use")) {
            tsr_config_diag_error(d, &item->mark, "write {use: rtn, bits: 8}, rtn-8 or original",
                                  "an entry of 'ends' does not say which quantizer");
            continue;
        } else if (!text_of(item, "", text, d)) {
            continue;
        }
        TSR_TRY(add(pl, job->registry, text, item, d, err));
    }
    return TSR_OK;
}

tsr_status tsr_planning_ends_of(struct tsr_planning *pl, struct tsr_registry *r,
                                const struct tsr_plan_file *f, const char *use, struct tsr_diag *d,
                                struct tsr_err *err)
{
    char text[TEXT], first[TEXT] = "";
    for (uint64_t i = 0; i < pl->n_ends; i++) /* the job's; the file says what it has */
        free(pl->ends[i]);
    pl->n_ends = pl->options.n_ends = 0;
    for (uint64_t i = 0; f->ends && i < f->ends->n; i++) {
        const struct tsr_config_node *e = f->ends->items[i];
        if (!text_of(e, use, text, d))
            return TSR_OK;
        if (i && strcmp(text, first) != 0) {
            tsr_config_diag_error(d, &e->mark, "give both the same scheme",
                                  "the plan packs embedding and head by two schemes, which --check "
                                  "does not count");
            return TSR_OK;
        }
        memcpy(first, text, sizeof first);
    }
    return *first ? add(pl, r, first, f->ends, d, err) : TSR_OK;
}
