/* Descent on e H e^T, e the errors of a row and H the Hessian of its inputs: each code, each scale and each minimum moves
 * while the sum falls. */
#include "checkpoint/export/gguf_super.h"

#include "base/f16.h"

#include <math.h>

#define PASSES 8u

struct row {
    const struct tsr_export_gguf_levels *k;
    const struct tsr_export_gguf_inputs *in;
    uint64_t                             cols;
    float *slope; /* H e^T: half of how the sum falls when a weight grows */
    float *step;  /* of the move that is considered */
};

/* How much the sum falls if the weights from `at` on grow by step. */
static float gain(const struct row *w, uint64_t at, unsigned n)
{
    float linear = 0, square = 0, own = 0;
    for (unsigned i = 0; i < n; i++) {
        const float *h = w->in->hessian + (at + i) * w->cols + at;
        float        sum = 0;
        for (unsigned j = 0; j < n; j++)
            sum += h[j] * w->step[j];
        linear += w->step[i] * w->slope[at + i];
        square += w->step[i] * sum;
        own += w->step[i] * w->step[i];
    }
    return 2 * linear - square - w->in->damping * own;
}

static void move(const struct row *w, uint64_t at, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const float *h = w->in->hessian + (at + i) * w->cols;
        const float  d = w->step[i];
        for (uint64_t j = 0; d != 0 && j < w->cols; j++)
            w->slope[j] -= d * h[j];
        w->slope[at + i] -= w->in->damping * d;
    }
}

static bool try_scale(const struct row *w, struct tsr_export_gguf_super *s, unsigned g, uint64_t at,
                      int by)
{
    const struct tsr_export_gguf_levels *k = w->k;
    int next = s->scale[g] + by, lo = k->negative ? -(int)k->steps - 1 : 0;
    if (next < lo || next > k->steps)
        return false;
    float d = tsr_f16_f32(s->d) * (float)by;
    for (unsigned i = 0; i < k->group; i++)
        w->step[i] = d * (float)((int)s->code[g * k->group + i] - (int)k->zero);
    if (!(gain(w, at, k->group) > 0))
        return false;
    move(w, at, k->group);
    s->scale[g] = (int8_t)next;
    return true;
}

static bool try_minimum(const struct row *w, struct tsr_export_gguf_super *s, unsigned g,
                        uint64_t at, int by)
{
    int next = s->minimum[g] + by;
    if (next < 0 || next > w->k->steps)
        return false;
    for (unsigned i = 0; i < w->k->group; i++)
        w->step[i] = -tsr_f16_f32(s->m) * (float)by;
    if (!(gain(w, at, w->k->group) > 0))
        return false;
    move(w, at, w->k->group);
    s->minimum[g] = (uint8_t)next;
    return true;
}

/* The code that the slope asks for. */
static bool try_code(const struct row *w, float scale, unsigned char *code, uint64_t at)
{
    float diag = w->in->hessian[at * w->cols + at] + w->in->damping;
    float want = (float)*code + w->slope[at] / diag / scale;
    float top = w->k->top;
    want = want > 0 ? want : 0;
    want = want < top ? want : top;
    int c = (int)(want + 0.5f);
    w->step[0] = scale * (float)(c - (int)*code);
    if (c == *code || !(gain(w, at, 1) > 0))
        return false;
    move(w, at, 1);
    *code = (unsigned char)c;
    return true;
}

static uint64_t pass(const struct row *w, struct tsr_export_gguf_super *s)
{
    const struct tsr_export_gguf_levels *k = w->k;
    uint64_t                             moved = 0;
    for (uint64_t first = 0; first < w->cols; first += k->elements, s++) {
        for (unsigned g = 0; g < tsr_export_gguf_groups(k); g++) {
            uint64_t at = first + (uint64_t)g * k->group;
            if (k->steps > 1) {
                moved += try_scale(w, s, g, at, 1) || try_scale(w, s, g, at, -1);
                moved +=
                    k->minimum && (try_minimum(w, s, g, at, 1) || try_minimum(w, s, g, at, -1));
            }
            float scale = tsr_f16_f32(s->d) * (float)s->scale[g];
            for (unsigned i = 0; scale != 0 && i < k->group; i++)
                moved += try_code(w, scale, &s->code[g * k->group + i], at + i);
        }
    }
    return moved;
}

void tsr_export_gguf_descend_row(const struct tsr_export_gguf_levels *k, const float *x,
                                 const struct tsr_export_gguf_inputs *in, uint64_t cols,
                                 struct tsr_export_gguf_super *s, float *room)
{
    struct row w = { .k = k, .in = in, .cols = cols, .slope = room, .step = room + cols };
    for (uint64_t i = 0; i < cols; i++)
        w.slope[i] = 0;
    for (uint64_t at = 0, n = 0; at < cols; at += k->group, n++) {
        const struct tsr_export_gguf_super *b = s + n / tsr_export_gguf_groups(k);
        unsigned                            g = (unsigned)(n % tsr_export_gguf_groups(k));
        float                               scale = tsr_f16_f32(b->d) * (float)b->scale[g];
        float m = k->minimum ? tsr_f16_f32(b->m) * (float)b->minimum[g] : 0;
        for (unsigned i = 0; i < k->group; i++) {
            int   code = b->code[g * k->group + i];
            float y = scale * (float)(code - (int)k->zero) - m;
            w.step[i] = y - x[at + i]; /* the slope starts as that of the row itself */
        }
        move(&w, at, k->group);
    }
    for (unsigned p = 0; p < PASSES; p++)
        if (pass(&w, s) == 0)
            break;
}
