/* A file tessera.codec-state/1 from bytes: what is accepted has states that hold bytes, each those that its hash says. */
#include "base/mem.h"
#include "eval/codec_file.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_eval_codec_file *f = NULL;
    struct tsr_eval_codec_key   k = { .model = "xxh3:of a model",
                                      .weights = "stored",
                                      .codec = "int4_bf16",
                                      .algorithm = TSR_COMM_ALL_GATHER,
                                      .ranks = 2 };
    char                        path[120];
    (void)snprintf(path, sizeof path, "%s/state", fuzz_store("state", data, size));
    tsr_status st = tsr_eval_codec_file_load(&f, path, &k, &e.err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK ? f != NULL : e.text[0] != '\0');
    if (st != TSR_OK)
        return 0;
    must(f->n > 0 && memchr(f->text, '\0', sizeof f->text) != NULL);
    unsigned sum = 0;
    for (uint64_t i = 0; i < f->n; i++) {
        must(f->states[i].data && f->states[i].bytes > 0 && f->states[i].bytes < size);
        for (uint64_t b = 0; b < f->states[i].bytes; b++)
            sum += ((const unsigned char *)f->states[i].data)[b];
    }
    must(sum < UINT32_MAX);
    tsr_eval_codec_file_free(f);
    return 0;
}
