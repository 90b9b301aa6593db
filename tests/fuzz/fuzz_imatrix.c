/* Importance matrices from bytes, in both forms: names in order, each found, and every number finite. */
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/gguf/imatrix.h"
#include "store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void look(const struct tsr_gguf_imatrix *m)
{
    must(m->n > 0);
    for (uint64_t i = 0; i < m->n; i++) {
        const struct tsr_gguf_imatrix_entry *e = tsr_gguf_imatrix_find(m, m->v[i].name);
        must(e && strcmp(e->name, m->v[i].name) == 0);
        must(i == 0 || strcmp(m->v[i - 1].name, m->v[i].name) < 0);
        must(m->v[i].n > 0);
        for (uint64_t k = 0; k < m->v[i].n; k++)
            must(isfinite(m->v[i].square[k]) && m->v[i].square[k] >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_gguf_imatrix m;
    char                   *path = tsr_path_join(fuzz_store("imatrix", data, size), "imatrix");
    must(path != NULL);
    tsr_status st = tsr_gguf_imatrix_read(&m, path, &e.err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e.text[0] != '\0');
    if (st == TSR_OK) {
        look(&m);
        tsr_gguf_imatrix_free(&m);
    }
    free(path);
    return 0;
}
