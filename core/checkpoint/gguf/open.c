/* A GGUF file: opening it, and its tensors by name. */
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_READ (UINT64_C(1) << 20)

bool tsr_gguf_is(const char *path)
{
    return tsr_file_begins(path, "GGUF", 4);
}

void tsr_gguf_close(struct tsr_gguf *g)
{
    if (g->file.fd >= 0)
        tsr_file_close(&g->file);
    free(g->keys);
    free(g->tensors);
    free((void *)g->by_name);
    free((void *)g->key_by_name);
    free(g->text);
    free(g->path);
    free(g->owned);
    memset(g, 0, sizeof *g);
    g->file.fd = -1;
}

static tsr_status read_header(struct tsr_gguf *g, const struct tsr_file *f, struct tsr_err *err)
{
    bool more = true;
    for (uint64_t n = FIRST_READ; more; n *= 4) {
        uint64_t       bytes = n < f->size ? n : f->size;
        unsigned char *data = tsr_new(bytes, 1);
        if (!data)
            return tsr_fail_nomem(err, bytes, f->path);
        tsr_status st = tsr_file_read(f, 0, data, bytes, err);
        if (st == TSR_OK)
            st = tsr_gguf_parse(g, f->path, data, bytes, f->size, &more, err);
        g->owned = data;
        if (st != TSR_OK || more)
            tsr_gguf_close(g);
        TSR_TRY(st);
    }
    return TSR_OK;
}

/* One of several files, by its metadata. */
static tsr_status refuse_split(const struct tsr_gguf *g, struct tsr_err *err)
{
    int64_t count = 1;
    TSR_TRY(tsr_gguf_int(g, "split.count", false, 0, 65535, &count, err));
    if (count > 1)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: is one of %lld parts of a split model; join them first (llama-gguf-split "
            "--merge)",
            g->path, (long long)count);
    return TSR_OK;
}

tsr_status tsr_gguf_open(struct tsr_gguf *g, const char *path, struct tsr_err *err)
{
    struct tsr_file f;
    memset(g, 0, sizeof *g);
    g->file.fd = -1;
    TSR_TRY(tsr_file_open(&f, path, err));
    tsr_status st = read_header(g, &f, err);
    if (st == TSR_OK)
        st = tsr_file_unchanged(&f, err);
    if (st == TSR_OK)
        st = refuse_split(g, err);
    if (st != TSR_OK) {
        tsr_file_close(&f);
        tsr_gguf_close(g);
        return st;
    }
    g->file = f;
    return TSR_OK;
}

const struct tsr_gguf_tensor *tsr_gguf_find(const struct tsr_gguf *g, const char *name)
{
    uint64_t lo = 0, hi = g->n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int      c = strcmp(name, g->by_name[mid]->name);
        if (c == 0)
            return g->by_name[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
