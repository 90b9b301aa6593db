/* What a comparison reads that is not YAML: .kld headers and multiple-choice questions. */
#include "base/mem.h"
#include "eval/choices.h"
#include "eval/kld.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void expected(tsr_status st, const struct tsr_errbuf *e)
{
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e->text[0] != '\0');
}

/* What is accepted adds up to the file's size, whichever that is said to be. */
static void header_of(const uint8_t *data, size_t size, uint64_t file_size)
{
    struct tsr_errbuf   e = TSR_ERRBUF(e);
    struct tsr_eval_kld k = { 0 };
    tsr_status          st = tsr_eval_kld_parse(&k, "input", data, size, file_size, &e.err);
    expected(st, &e);
    if (st == TSR_OK)
        must(k.data + k.chunks * k.rows * k.row_bytes == file_size && k.rows > 0 &&
             k.data == 20 + 4 * k.chunks * k.context && k.row_bytes >= 2 * k.vocab + 8);
}

static void questions_of(const uint8_t *data, size_t size)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_eval_choices *c = NULL;
    tsr_status st = tsr_eval_choices_parse(&c, "input", (const char *)data, size, &e.err);
    expected(st, &e);
    if (st != TSR_OK)
        return;
    must(c->n > 0);
    for (uint64_t i = 0; i < c->n; i++) {
        must(c->q[i].context.v && c->q[i].n >= 2 && c->q[i].answer < c->q[i].n);
        for (uint64_t k = 0; k < c->q[i].n; k++)
            must(c->q[i].choice[k].v && c->q[i].choice[k].n > 0);
    }
    tsr_eval_choices_destroy(c);
}

/* The size that a header asks for, so that the rest of the checks is reached. */
static uint64_t asked(const uint8_t *data, size_t size)
{
    uint64_t v[3] = { 0 };
    for (size_t i = 0; size >= 20 && i < 12; i++)
        v[i / 4] |= (uint64_t)data[8 + i] << (8 * (i % 4));
    return 20 + 4 * v[2] * v[0] + v[2] * (v[0] - 1 - v[0] / 2) * 2 * (2 * ((v[1] + 1) / 2) + 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    header_of(data, size, size);
    header_of(data, size, asked(data, size));
    questions_of(data, size);
    return 0;
}
