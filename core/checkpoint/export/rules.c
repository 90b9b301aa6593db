/* The linears of an export and what each is stored as: for the configuration, and for what holds of all of them. */
#include "checkpoint/export/internal.h"

#include "base/mem.h"
#include "model/bind.h"
#include "model/family.h"

#include <string.h>

bool tsr_export_is_linear(const struct tsr_model_stored_view *v)
{
    return v->kind == TSR_MODEL_STORED_LINEAR || v->kind == TSR_MODEL_STORED_HEAD;
}

/* Experts in one tensor that is a parameter of its module have no module whose tensors they could be. */
static tsr_status check_module(const struct tsr_export *x, const struct tsr_model_stored_view *v)
{
    if (!v->stack || x->kind->experts || *v->suffix)
        return TSR_OK;
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: \"%s\" cannot be stored as %s: the experts of a layer are one tensor, "
                    "not the weight of a linear; export to %s",
                    x->path, v->module, x->kind->name,
                    v->role->interleaved ? "hf, mxfp4 or gguf" : "hf or gguf");
}

tsr_status tsr_export_rule_add(struct tsr_export *x, const struct tsr_export_module *m, bool packed)
{
    struct tsr_export_rules *r = &x->rules;
    if (packed)
        TSR_TRY(check_module(x, m->v));
    if (r->n == r->cap) {
        uint64_t                want = r->cap ? r->cap * 2 : 64;
        struct tsr_export_rule *v = tsr_renew(r->v, want, sizeof *v);
        if (!v)
            return tsr_fail_nomem(x->err, want * sizeof *v, "the list of linears");
        r->v = v;
        r->cap = want;
    }
    struct tsr_export_rule *n = &r->v[r->n++];
    memset(n, 0, sizeof *n);
    memcpy(n->module, m->v->module, sizeof n->module);
    n->head = m->v->kind == TSR_MODEL_STORED_HEAD;
    n->packed = packed;
    if (packed) {
        n->fp8 = tsr_export_is_fp8(m);
        n->mx = m->form == TSR_EXPORT_FORM_MX && !n->fp8;
        n->nvfp4 = m->form == TSR_EXPORT_FORM_TABLE;
        n->bits = m->f.bits;
        n->zero = n->mx || n->fp8 ? 0 : m->f.zero;
        n->group = n->mx ? 32 : n->nvfp4 ? 16 : m->f.group;
        n->cols = m->v->cols;
    }
    return TSR_OK;
}

tsr_status tsr_export_rule_look(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                tsr_status (*check)(struct tsr_export              *x,
                                                    const struct tsr_export_module *m))
{
    struct tsr_export_module m;
    if (!tsr_export_is_linear(v))
        return TSR_OK;
    tsr_export_module_of(&m, v);
    bool packed = m.form != TSR_EXPORT_FORM_DENSE;
    if (packed)
        TSR_TRY(check(x, &m));
    return tsr_export_rule_add(x, &m, packed);
}

void tsr_export_rules_merge(struct tsr_export_rules *r, bool eight)
{
    for (uint64_t i = 0; i < r->n; i++) {
        struct tsr_export_rule *a = &r->v[i];
        if (!a->packed || a->group != 0 || (a->bits == 8 && !eight))
            continue;
        for (uint64_t k = 0; k < r->n && a->group == 0; k++) {
            const struct tsr_export_rule *b = &r->v[k];
            if (b->packed && b->group == a->cols && b->bits == a->bits && b->zero == a->zero &&
                b->mx == a->mx)
                a->group = a->cols;
        }
    }
}

tsr_status tsr_export_rules_need_packed(struct tsr_export *x)
{
    if (tsr_export_rule_common(&x->rules))
        return TSR_OK;
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: no linear of %s is quantized; quantize it first (tessera quantize), "
                    "or export to hf",
                    x->path, x->m->path);
}

bool tsr_export_rule_same(const struct tsr_export_rule *a, const struct tsr_export_rule *b)
{
    return a->packed == b->packed && a->mx == b->mx && a->nvfp4 == b->nvfp4 && a->fp8 == b->fp8 &&
           a->bits == b->bits && a->zero == b->zero && a->group == b->group && a->block == b->block;
}

const struct tsr_export_rule *tsr_export_rule_common(const struct tsr_export_rules *r)
{
    const struct tsr_export_rule *best = NULL;
    uint64_t                      most = 0;
    for (uint64_t i = 0; i < r->n; i++) {
        uint64_t n = 0;
        bool     seen = false;
        for (uint64_t k = 0; k < r->n; k++) {
            bool same = tsr_export_rule_same(&r->v[i], &r->v[k]);
            seen = seen || (same && k < i);
            n += same;
        }
        if (!seen && r->v[i].packed && n > most) {
            most = n;
            best = &r->v[i];
        }
    }
    return best;
}

bool tsr_export_ignored(const struct tsr_export *x, bool pattern, json_t *list)
{
    const struct tsr_model_family *f = x->m->storage->family;
    for (const char *const *p = f->ignored; *p; p++) {
        char   text[TSR_STORED_MODULE];
        size_t n = strlen(*p);
        if (n < 3 || n > 100 || strcmp(*p + n - 2, ".*") != 0 || strchr(*p, '#'))
            continue;
        (void)snprintf(text, sizeof text, pattern ? "re:.*%.*s.*" : "%.*s", (int)(n - 2), *p);
        if (json_array_append_new(list, json_string(text)) != 0)
            return false;
    }
    return true;
}

json_t *tsr_export_rules_kept(const struct tsr_export *x, bool head)
{
    const struct tsr_export_rules *r = &x->rules;
    json_t                        *kept = json_array();
    bool                           ok = kept != NULL;
    for (uint64_t i = 0; ok && i < r->n; i++)
        if (!r->v[i].packed && (head || !r->v[i].head))
            ok = json_array_append_new(kept, json_string(r->v[i].module)) == 0;
    if (ok && tsr_export_ignored(x, false, kept))
        return kept;
    json_decref(kept);
    return NULL;
}
