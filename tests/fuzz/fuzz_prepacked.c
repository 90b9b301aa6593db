/* A prepacked file: bytes as one, and one made of a config.json and an index, whose hashes nobody
 * could guess: they are not looked at. */
#include "base/mem.h"
#include "checkpoint/prepacked/prepacked.h"
#include "model/bind.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROOM (UINT64_C(64) << 10) /* for weights and vectors, behind the text */

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void expected(tsr_status st, const struct tsr_errbuf *e)
{
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || (e->text[0] != '\0' && strchr(e->text, '\n') == NULL));
}

static void check_slot(const struct tsr_prepacked *p, const struct tsr_prepacked_mapped_weight *w)
{
    if (w->data)
        must(w->data >= p->data && w->bytes <= p->bytes &&
             w->data + w->bytes <= p->data + p->bytes && w->rows > 0 && w->cols > 0 &&
             w->format.id);
}

/* What is accepted lies inside of the file, and every part that the engine needs is there. */
static void check_model(const struct tsr_prepacked *p, const struct tsr_model *m)
{
    check_slot(p, &p->embed);
    check_slot(p, &p->head);
    must(p->embed.data && (m->hp.tied || p->head.data));
    must(m->final_norm.gain == NULL ||
         ((const unsigned char *)m->final_norm.gain >= p->data &&
          (const unsigned char *)(m->final_norm.gain + m->hp.hidden) <= p->data + p->bytes));
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
            check_slot(p, &p->lin[l][i]);
            must((m->layers[l].lin[i].w.rows != 0) == (p->lin[l][i].data != NULL));
        }
}

static void model_of(const uint8_t *image, uint64_t bytes)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_model     *m = tsr_new(1, sizeof *m);
    struct tsr_prepacked *p = tsr_new(1, sizeof *p);
    if (m)
        m->storage = tsr_new(1, sizeof *m->storage);
    if (m && m->storage && p) {
        m->storage->sealed.fd = -1;
        tsr_status st = tsr_prepacked_parse(p, "input", image, bytes, false, &e.err);
        expected(st, &e);
        if (st == TSR_OK) {
            st = tsr_prepacked_model_from_prepacked(m, p, false, &e.err);
            expected(st, &e);
            if (st == TSR_OK)
                check_model(p, m);
            char    *text = NULL;
            uint64_t len;
            expected(tsr_prepacked_text(p, "tokenizer.json", &text, &len, &e.err), &e);
            free(text);
        }
        m->prepacked = p;
        tsr_model_destroy(m);
        return;
    }
    free(m ? m->storage : NULL);
    free(m);
    free(p);
}

/* Two bytes: length of the config.json that follows; the rest is the index. */
static void made_of(const uint8_t *data, size_t size)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (size < 2)
        return;
    uint64_t config = data[0] | (uint64_t)data[1] << 8;
    config = config < size - 2 ? config : size - 2;
    struct tsr_prepacked_head h = { .index_at =
                                        TSR_PREPACKED_PAGE + ROOM + (config + 4095) / 4096 * 4096,
                                    .index_bytes = size - 2 - config };
    h.file_bytes = h.index_at + h.index_bytes;
    unsigned char *image = NULL;
    if (posix_memalign((void **)&image, 64, h.file_bytes) != 0)
        return;
    memset(image, 0, h.file_bytes);
    memcpy(image + TSR_PREPACKED_PAGE, data + 2, config);
    memcpy(image + h.index_at, data + 2 + config, h.index_bytes);
    if (tsr_prepacked_head_hash(&h, image + h.index_at, h.hash, &e.err) == TSR_OK) {
        tsr_prepacked_head_write(&h, image);
        model_of(image, h.file_bytes);
    }
    free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = NULL;
    if (posix_memalign((void **)&copy, 64, size + 1) == 0) {
        memcpy(copy, data, size);
        model_of(copy, size);
        free(copy);
    }
    made_of(data, size);
    return 0;
}
