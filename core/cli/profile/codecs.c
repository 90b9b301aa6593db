/* tessera profile: speeds of codecs, as links between stages and sums inside them code their messages. */
#include "base/mem.h"
#include "cli/profile/profile.h"
#include "comm/predict.h"

#include <stdlib.h>

#define COLS  4096u /* of a row; codecs count in blocks of at most a few hundred */
#define SIZES 3u
#define TRIES 8 /* for each repeat; the fastest counts, as in a sum that is tuned */

/* Rows of F32: of a decode step, of a piece of a sum (comm/coder.h), of a chunk of a prompt; and the borders between them,
 * in bytes. */
static const uint64_t rows[SIZES] = { 1, 16, 512 };
static const uint64_t above[SIZES] = { 0, 64 << 10, 1 << 20 };

static const char *const default_codecs[] = { "plain", "plain:dtype=bf16", "mx", "int4_channel" };

static tsr_status one(struct profile *p, const struct tsr_comm_coder *c, struct profile_codec *to,
                      uint64_t n, struct tsr_err *err)
{
    struct tsr_comm_speed v;
    TSR_TRY(tsr_comm_measure(c, n, COLS, (uint32_t)p->o->repeats * TRIES, &v, err));
    if (!(v.encode > 0) || !(v.decode > 0))
        return tsr_fail(err, TSR_E_DEVICE,
                        "codec '%s': coding %llu bytes took no time that the clock shows", to->text,
                        (unsigned long long)to->bytes);
    to->encode = sizeof(float) / v.encode;
    to->decode = sizeof(float) / v.decode;
    return profile_times_codec(p, to, err);
}

tsr_status profile_codecs(struct profile *p, struct tsr_err *err)
{
    const char *const *texts = p->o->codec.n ? p->o->codec.v : default_codecs;
    uint64_t n = p->o->codec.n ? p->o->codec.n : sizeof default_codecs / sizeof *default_codecs;
    p->codecs = tsr_new(n * SIZES, sizeof *p->codecs);
    if (!p->codecs)
        return tsr_fail_nomem(err, n * SIZES * sizeof *p->codecs, "codecs");
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_comm_coder c = { 0 };
        struct tsr_comm_way   way = { .codec = texts[i],
                                      .algorithm = TSR_COMM_ALL_GATHER,
                                      .piece = rows[SIZES - 1] * COLS * sizeof(float) };
        tsr_status            st = tsr_comm_coder_open(&c, p->r, &way, 2, err);
        for (uint32_t k = 0; st == TSR_OK && k < SIZES; k++) {
            struct profile_codec *to = &p->codecs[p->n_codecs];
            *to = (struct profile_codec){ .text = texts[i],
                                          .bytes = rows[k] * COLS * sizeof(float),
                                          .above = above[k] };
            st = one(p, &c, to, rows[k], err);
            p->n_codecs += st == TSR_OK;
        }
        tsr_comm_coder_close(&c);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "--codec %s", texts[i]);
    }
    return TSR_OK;
}
