/* Times of embedding, head and links from a device profile. */
#include "base/f16.h"
#include "comm/predict.h"
#include "plan/cost/device.h"
#include "plan/cost/fit.h"
#include "plan/cost/latency.h"

#include <math.h>
#include <string.h>

/* ---- ends ------------------------------------------------------------------------------------ */

/* c0 + c1 * tokens over the measured ends of a kernel, scaled by the matrix; false: none. */
static bool end_fit(const struct tsr_plan_profile *p, bool head, const char *kernel, double vocab,
                    double width, double tokens, struct tsr_plan_time *out)
{
    double   sw = 0, sx = 0, sxx = 0, sy = 0, sxy = 0, low = INFINITY, high = 0;
    uint64_t n = 0;
    out->extrapolated = true;
    for (uint64_t i = 0; i < p->n_ends; i++) {
        const struct tsr_plan_end_point *e = &p->ends[i];
        /* reading a row costs its width; a product the whole matrix */
        double scale =
            head ? vocab * width / ((double)e->vocab * (double)e->width) : width / (double)e->width;
        double y = e->ms * scale, x = (double)e->tokens, weight = 1 / (y * y);
        if (e->head != head || strcmp(e->kernel, kernel) != 0)
            continue;
        sw += weight;
        sx += weight * x;
        sxx += weight * x * x;
        sy += weight * y;
        sxy += weight * x * y;
        low = fmin(low, x);
        high = fmax(high, x);
        n++;
        if ((double)e->vocab == vocab && (double)e->width == width)
            out->extrapolated = false;
    }
    if (n == 0)
        return false;
    double det = sw * sxx - sx * sx;
    double b = det > 1e-12 * sw * sxx ? (sw * sxy - sx * sy) / det : 0;
    double a = (sy - b * sx) / sw;
    if (b < 0 || a < 0) { /* non-negative: one of the two */
        bool through = sxy * sxy / sxx > sy * sy / sw;
        b = through ? sxy / sxx : 0;
        a = through ? 0 : sy / sw;
    }
    out->ms = a + b * tokens;
    out->basis = TSR_PLAN_FITTED;
    out->extrapolated = out->extrapolated || tokens < low || tokens > high;
    return true;
}

tsr_status tsr_plan_latency_embed(const struct tsr_plan_latency_job *j,
                                  const struct tsr_plan_mesh *m, double tokens,
                                  struct tsr_plan_time *out, struct tsr_err *err)
{
    const struct tsr_plan_shape *s = j->shape;
    char                         kernel[TSR_PLAN_KERNEL_TEXT];
    struct tsr_format            f;
    uint64_t                     bytes;
    double                       each = (double)tsr_dtype_size(s->embed.dtype);
    TSR_TRY(tsr_plan_candidate_matrix(j->embed, &s->embed, &f, &bytes, err));
    tsr_plan_kernel_name(&f, kernel);
    tsr_plan_profile_scheme_kernel(m->profile, NULL, kernel);
    *out = (struct tsr_plan_time){ .basis = TSR_PLAN_ROOFLINE };
    if (j->embed)
        each = (double)bytes / ((double)s->vocab * (double)s->embed_dim);
    if (end_fit(m->profile, false, kernel, (double)s->vocab, (double)s->embed_dim, tokens, out))
        return TSR_OK;
    /* a row is read, widened and written: 4 bytes out */
    double moved = tokens * (double)s->embed_dim * (each + 4);
    out->extrapolated = false;
    out->ms = 1e3 * moved / m->profile->bandwidth;
    return TSR_OK;
}

tsr_status tsr_plan_latency_head(const struct tsr_plan_latency_job *j,
                                 const struct tsr_plan_mesh        *m,
                                 const struct tsr_plan_candidate *head, double rows,
                                 struct tsr_plan_time *out, struct tsr_err *err)
{
    const struct tsr_plan_shape *s = j->shape;
    char                         kernel[TSR_PLAN_KERNEL_TEXT];
    struct tsr_format            f;
    uint64_t                     bytes;
    TSR_TRY(tsr_plan_candidate_matrix(head, &s->head, &f, &bytes, err));
    tsr_plan_kernel_name(&f, kernel);
    tsr_plan_profile_scheme_kernel(m->profile, NULL, kernel);
    *out = (struct tsr_plan_time){ .basis = TSR_PLAN_ROOFLINE };
    if (end_fit(m->profile, true, kernel, (double)s->vocab, (double)s->embed_dim, rows, out))
        return TSR_OK;
    const struct tsr_plan_kernel_speed *k = tsr_plan_profile_kernel(m->profile, kernel, rows);
    out->extrapolated = false;
    out->ms = NAN;
    if (!k)
        return TSR_OK;
    /* a layer without attention */
    double               weights = (double)s->vocab * (double)s->embed_dim;
    struct tsr_plan_work w = { .weights = weights, .read = weights, .bytes = (double)bytes };
    out->ms = tsr_plan_roofline_ms(m->profile, k, TSR_PLAN_DECODE, &w, 2, rows, 1, 0);
    return TSR_OK;
}

/* ---- links ------------------------------------------------------------------------------------- */

/* Bytes that a transport takes before the other side is ready: the ring of `local` holds 256 KiB, and MPI sends 64 KiB
 * eagerly, as a rule. */
#define HELD 65536.0

/* Seconds a number that the codec takes on the mesh's device for a message of so many; 0: the profile does not say, or no
 * codec. */
static struct tsr_comm_speed coding(const struct tsr_plan_mesh *m, const char *codec,
                                    double numbers)
{
    const struct tsr_plan_codec_speed *s =
        codec && m->profile ? tsr_plan_profile_codec_of(m->profile, codec, numbers * sizeof(float))
                            : NULL;
    return s ? (struct tsr_comm_speed){ sizeof(float) / s->encode, sizeof(float) / s->decode }
             : (struct tsr_comm_speed){ 0, 0 };
}

void tsr_plan_latency_coding(const struct tsr_plan_mesh *m, const char *codec, uint64_t rows,
                             uint64_t cols, struct tsr_plan_coding *out)
{
    double                numbers = (double)rows * (double)cols;
    struct tsr_comm_speed s = coding(m, codec, numbers);
    *out = (struct tsr_plan_coding){ 1e3 * numbers * s.encode, 1e3 * numbers * s.decode };
}

/* `copies` of a message by one rank, and the decoding of the last.
 *
 * A sender's thread encodes a message, and is free when the transport has taken its last byte; a receiver's thread takes
 * the bytes and then decodes (runtime/rank.c, comm/link.c). So of one message after the other three things run
 * concurrently, except that only HELD bytes travel while a thread is busy with another message. */
static tsr_status transfer(const struct tsr_plan_cluster *c, const struct tsr_plan_mesh *from,
                           const struct tsr_plan_mesh *to, enum tsr_phase phase,
                           const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                           double copies, struct tsr_plan_send *out, struct tsr_err *err)
{
    const struct tsr_plan_link *l = tsr_plan_cluster_link(c, from->node, to->node, phase);
    const char                 *codec = w ? w->text : NULL;
    struct tsr_plan_coding      by, at;
    uint64_t                    bytes;
    TSR_TRY(tsr_plan_wire_bytes(w, rows, cols, &bytes, err));
    tsr_plan_latency_coding(from, codec, rows, cols, &by);
    tsr_plan_latency_coding(to, codec, rows, cols, &at);
    double sent = tsr_plan_link_ms(l, (double)bytes), busy = 0;
    if ((double)bytes > HELD)
        busy = sent - tsr_plan_link_ms(l, HELD);
    double next = fmax(sent, by.encode_ms + busy); /* to the next copy */
    out->ms = by.encode_ms + sent + (copies - 1) * next + at.decode_ms;
    out->every_ms = fmax(copies * next, at.decode_ms + busy);
    if (!isfinite(out->ms)) /* there is no link */
        out->every_ms = out->ms;
    return TSR_OK;
}

tsr_status tsr_plan_latency_link(const struct tsr_plan_cluster *c, const struct tsr_plan_mesh *from,
                                 const struct tsr_plan_mesh *to, enum tsr_phase phase,
                                 const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                                 struct tsr_plan_send *out, struct tsr_err *err)
{
    /* rank t of the next stage receives from rank t modulo the ranks of this one (runtime/group_links.c), whose sender
     * thread serves one rank after the other (runtime/rank.c) */
    return transfer(c, from, to, phase, w, rows, cols, ceil((double)to->tp / (double)from->tp), out,
                    err);
}

tsr_status tsr_plan_latency_back(const struct tsr_plan_cluster *c, const struct tsr_plan_mesh *last,
                                 const struct tsr_plan_mesh *first, enum tsr_phase phase,
                                 const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                                 struct tsr_plan_send *out, struct tsr_err *err)
{
    return transfer(c, last, first, phase, w, rows, cols, 1, out, err);
}

/* What a sum asks of a codec when only its bytes count: the wire's, under a codec's interface. */
static tsr_status size_of(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                          struct tsr_err *err)
{
    return tsr_plan_wire_bytes(self, rows, cols, bytes, err);
}

tsr_status tsr_plan_latency_collective(const struct tsr_plan_mesh *m, enum tsr_phase phase,
                                       const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                                       double *ms, bool *two_step, struct tsr_err *err)
{
    static const struct tsr_codec_v1 sizes = { .wire_bytes = size_of };
    const struct tsr_plan_link      *l = &m->inside[phase];
    const struct tsr_comm_path       path = { l->alpha_ms * 1e-3, l->rate };
    struct tsr_comm_speed            speed;
    void                            *self[2 * TSR_COMM_MAX_RANKS];
    double                           s[2];
    *two_step = false;
    *ms = m->tp <= 1 || l->rate > 0 ? 0 : INFINITY;
    if (m->tp <= 1 || !(l->rate > 0))
        return TSR_OK;
    if (m->tp > TSR_COMM_MAX_RANKS)
        return tsr_fail(err, TSR_E_INPUT, "%u devices share a layer, at most %u can", m->tp,
                        TSR_COMM_MAX_RANKS);
    for (uint32_t i = 0; i < 2 * m->tp; i++)
        self[i] = (void *)(uintptr_t)w;
    struct tsr_comm_coder c = { .iface = &sizes,
                                .ranks = m->tp,
                                .coupled = w && w->iface && w->iface->extension &&
                                           w->iface->extension(w->self, TSR_CODEC_COUPLED),
                                .self = self };
    for (int i = 0; i < 2; i++) {
        c.algorithm = i ? TSR_COMM_TWO_STEP : TSR_COMM_ALL_GATHER;
        c.piece = tsr_comm_piece(c.algorithm, m->tp);
        /* a message is a piece, or a rank's slice of one */
        double numbers = (double)tsr_comm_piece_rows(&c, rows, cols) * (double)cols;
        speed = coding(m, w ? w->text : NULL,
                       c.algorithm == TSR_COMM_TWO_STEP ? numbers / m->tp : numbers);
        TSR_TRY(tsr_comm_predict(&c, &speed, &path, rows, cols, &s[i], err));
    }
    *two_step = s[1] < s[0];
    *ms = 1e3 * s[*two_step];
    return TSR_OK;
}
