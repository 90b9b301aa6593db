/* split_experts FOLDER OUT [SKIPPED] - a model whose experts stand in one tensor, each in tensors of its own: gate_up_proj
 * [experts, 2 x width, hidden] as gate_proj and up_proj, down_proj as it is.  SKIPPED: a tensor that is left out. */
#include "base/file.h"
#include "base/output.h"
#include "checkpoint/safetensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tsr_errbuf err;

static void must(tsr_status st)
{
    if (st == TSR_OK)
        return;
    (void)fprintf(stderr, "split_experts: %s\n", err.text);
    exit(1);
}

struct made {
    struct tsr_st_out *o;
    const char        *skipped;
    bool               declare;
};

static void put(const struct made *m, const char *name, uint32_t dtype, uint32_t rank,
                const uint64_t *shape, const char *data, uint64_t bytes)
{
    if (m->skipped && strcmp(name, m->skipped) == 0)
        return;
    if (m->declare)
        must(tsr_safetensors_declare(m->o, name, dtype, rank, shape, &err.err));
    else
        tsr_safetensors_put(m->o, data, bytes);
}

/* Each expert's part of a stack: `n` matrices below each other. */
static void split(const struct made *m, const struct tsr_safetensors_tensor *t, const char *data,
                  const char *const *kinds, uint64_t n)
{
    static const char stack[] = ".experts.";
    int               at = (int)(strstr(t->name, stack) - t->name + (ptrdiff_t)sizeof stack - 1);
    uint64_t          shape[2] = { t->shape[1] / n, t->shape[2] };
    uint64_t          bytes = (t->end - t->begin) / t->shape[0] / n;
    for (uint64_t e = 0; e < t->shape[0]; e++)
        for (uint64_t k = 0; k < n; k++) {
            char name[256];
            (void)snprintf(name, sizeof name, "%.*s%llu.%s.weight", at, t->name,
                           (unsigned long long)e, kinds[k]);
            put(m, name, t->dtype, 2, shape, data + (e * n + k) * bytes, bytes);
        }
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

int main(int argc, char **argv)
{
    static const char *const gate_up[] = { "gate_proj", "up_proj" }, *const down[] = {
        "down_proj"
    };
    struct tsr_safetensors st;
    struct made            m = { .skipped = argc == 4 ? argv[3] : NULL };
    char                   path[512], *text;
    uint64_t               len;
    err = (struct tsr_errbuf)TSR_ERRBUF(err);
    if (argc != 3 && argc != 4)
        return 2;
    must(tsr_make_dirs(argv[2], &err.err));
    (void)snprintf(path, sizeof path, "%s/config.json", argv[1]);
    must(tsr_file_slurp(path, 1 << 20, &text, &len, &err.err));
    must(tsr_file_store_in(argv[2], "config.json", text, len, &err.err));
    free(text);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    must(tsr_safetensors_open(&st, path, &err.err));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", argv[2]);
    must(tsr_safetensors_create(&m.o, path, &err.err));
    for (int pass = 0; pass < 2; pass++) {
        m.declare = pass == 0;
        for (uint64_t i = 0; i < st.n; i++) {
            const struct tsr_safetensors_tensor *t = &st.tensors[i];
            char                                *data = malloc(t->end - t->begin);
            if (!data)
                abort();
            must(tsr_safetensors_read(&st, t, data, &err.err));
            if (ends_with(t->name, ".experts.gate_up_proj"))
                split(&m, t, data, gate_up, 2);
            else if (ends_with(t->name, ".experts.down_proj"))
                split(&m, t, data, down, 1);
            else
                put(&m, t->name, t->dtype, t->rank, t->shape, data, t->end - t->begin);
            free(data);
        }
        if (pass == 0)
            must(tsr_safetensors_begin(m.o, &err.err));
    }
    must(tsr_safetensors_commit(m.o, &err.err));
    tsr_safetensors_close(&st);
    return 0;
}
