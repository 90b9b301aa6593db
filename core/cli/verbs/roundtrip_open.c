/* Opens the inputs of `tessera roundtrip`: a plugin with options, and the matrices of a file. */
#include "cli/verbs/roundtrip_run.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *const suffixes[] = { ".hessian",     ".cross",  ".absmax",
                                        ".mean",        ".var",    ".mean_abs",
                                        ".sensitivity", ".inputs", ".calibration" };

static bool is_statistic(const struct tsr_safetensors *st, const char *name)
{
    for (uint64_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t n = strlen(name), s = strlen(suffixes[i]);
        char   base[TSR_ST_MAX_NAME + 1];
        if (n <= s || n - s > TSR_ST_MAX_NAME || strcmp(name + n - s, suffixes[i]) != 0)
            continue;
        memcpy(base, name, n - s);
        base[n - s] = '\0';
        if (tsr_safetensors_find(st, base))
            return true;
    }
    return false;
}

static tsr_status list_items(struct roundtrip *rt, const char *path, struct tsr_err *err)
{
    rt->items = tsr_new(rt->in.n, sizeof *rt->items);
    if (!rt->items)
        return tsr_fail_nomem(err, rt->in.n * sizeof *rt->items, "the list of tensors");
    for (uint64_t i = 0; i < rt->in.n; i++) {
        const struct tsr_safetensors_tensor *t = &rt->in.tensors[i];
        if (t->rank != 2 || is_statistic(&rt->in, t->name))
            continue;
        if (t->dtype != TSR_F32 && t->dtype != TSR_F16 && t->dtype != TSR_BF16)
            return tsr_fail(err, TSR_E_INPUT, "%s: tensor '%s' is %s; F32, F16 or BF16 was wanted",
                            path, t->name, t->dtype_name);
        rt->items[rt->n++] = (struct roundtrip_item){
            .name = t->name, .tensor = t, .rows = t->shape[0], .cols = t->shape[1]
        };
    }
    if (rt->n == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s holds no 2-D tensor", path);
    return TSR_OK;
}

tsr_status roundtrip_open(struct roundtrip *rt, const char *spec, const char *path,
                          struct tsr_err *err)
{
    TSR_TRY(tsr_plugin_spec_open(&rt->spec, rt->registry,
                                 rt->codec ? TSR_KIND_CODEC : TSR_KIND_QUANTIZER, spec, err));
    TSR_TRY(tsr_safetensors_open(&rt->in, path, err));
    rt->in_open = true;
    return list_items(rt, path, err);
}

void roundtrip_close(struct roundtrip *rt)
{
    if (rt->in_open)
        tsr_safetensors_close(&rt->in);
    free(rt->items);
    tsr_plugin_spec_close(&rt->spec);
}
