#include "exact.h"

#include <time.h>

/* ---- memory, time ---------------------------------------------------------- */

/* Blocks of many pages take as long to get from the system as a small problem takes to solve. */
#define MANY_BYTES (UINT64_C(64) << 10)
#define MOST_BYTES (UINT64_C(16) << 20)
#define WASTE      4u /* times what is needed, at most */

/* A freed block that is large enough; NULL: none. */
static uint64_t *freed_block(struct ex *x, uint64_t bytes)
{
    for (uint64_t i = 0; i < EX_BLOCKS && bytes >= MANY_BYTES; i++) {
        uint64_t *p = x->blocks[i];
        if (p && p[0] >= bytes && p[0] / WASTE <= bytes) {
            x->blocks[i] = NULL;
            return p;
        }
    }
    return NULL;
}

void *ex_new(struct ex *x, uint64_t n, uint64_t size)
{
    uint64_t *p = NULL, bytes, has = 0;
    if (!__builtin_mul_overflow(n, size, &bytes) && !__builtin_add_overflow(bytes, 64, &bytes)) {
        p = freed_block(x, bytes);
        has = p ? p[0] : bytes;
        p = p ? p : x->host->alloc(x->host->ctx, bytes, 64);
    }
    if (!p) {
        x->status = x->status == TSR_OK ? TSR_E_NOMEM : x->status;
        return NULL;
    }
    memset(p, 0, bytes);
    p[0] = has;
    return p + 8;
}

void ex_free(struct ex *x, void *p)
{
    if (!p)
        return;
    uint64_t *head = (uint64_t *)p - 8;
    for (uint64_t i = 0; i < EX_BLOCKS && head[0] >= MANY_BYTES && head[0] <= MOST_BYTES; i++)
        if (!x->blocks[i]) {
            x->blocks[i] = head;
            return;
        }
    x->host->release(x->host->ctx, head, head[0]);
}

void ex_release(const struct tsr_host *host, void **blocks)
{
    for (uint64_t i = 0; i < EX_BLOCKS; i++)
        if (blocks[i])
            host->release(host->ctx, blocks[i], *(uint64_t *)blocks[i]);
}

bool ex_grow(struct ex *x, void **p, uint64_t *room, uint64_t n, uint64_t size)
{
    if (n <= *room)
        return true;
    uint64_t more = *room * 2 > n ? *room * 2 : n;
    void    *bigger = ex_new(x, more, size);
    if (!bigger)
        return false;
    if (*p)
        memcpy(bigger, *p, *room * size);
    ex_free(x, *p);
    *p = bigger;
    *room = more;
    return true;
}

bool ex_stop(struct ex *x)
{
    struct timespec t;
    if (x->status != TSR_OK || x->late)
        return true;
    if (x->host->cancelled(x->host->ctx))
        x->status = TSR_E_CANCELLED;
    if (x->end_us && clock_gettime(CLOCK_MONOTONIC, &t) == 0)
        x->late = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u >= x->end_us;
    return x->status != TSR_OK || x->late;
}

/* ---- tables ---------------------------------------------------------------- */

double ex_unit(double total)
{
    int e = 0;
    (void)frexp(total, &e); /* total < 2^e */
    return fmax(ldexp(1.0, e - 53), 0x1p-1074);
}

double ex_snap(double v, double cap, double unit)
{
    return rint((v > 2 * cap ? 2 * cap : v) / unit) * unit;
}

/* The times of one phase on their way into a model. */
struct phase {
    double weight, link; /* an objective is at least this times one stage's, one link's time */
    double cap, unit;
};

static double snap(const struct phase *p, double ms)
{
    return p->weight > 0 ? ex_snap(ms, p->cap, p->unit) : 0;
}

static double snap_link(const struct phase *p, double ms)
{
    return p->link > 0 ? ex_snap(ms, p->cap, p->unit) : 0;
}

static double counts(uint64_t batch, uint64_t size)
{
    return ceil((double)batch / (double)size);
}

static double prefill_jobs(const struct tsr_solver_instance *in, const struct tsr_solver_option *o)
{
    return TSR_HAS(struct tsr_solver_option, o, prefill_jobs) && o->prefill_jobs > 0
               ? o->prefill_jobs
               : counts(in->batch, o->prefill_mb);
}

static void set_forms(const struct ex *x, struct ex_model *m, const struct tsr_solver_option *o)
{
    const struct tsr_solver_instance *in = x->in;
    double mu_pre = prefill_jobs(in, o), mu = counts(in->batch, o->decode_mb);
    double n = (double)(in->tokens - 1);
    double devices = 0;
    for (uint64_t g = 0; g < x->G; g++)
        devices += (double)x->have[g];
    double stages = devices < (double)x->L ? devices : (double)x->L;
    double resources = m->links ? 2 * stages - 1 : stages;
    m->a_max = mu_pre - 1;
    m->forms = 1;
    m->in_sum = in->objective == TSR_OBJECTIVE_PAPER ? 0 : 1;
    if (in->objective == TSR_OBJECTIVE_PAPER) {
        m->kap[0] = 1;
        m->c_max[0] = (mu - 1) * n;
    } else if (in->tokens > 1 && (mu < 2 || (mu < resources && n > 1))) {
        /* one micro-batch: the round trip counts; fewer than resources: either may */
        m->kap[0] = n;
        m->c_max[0] = mu - 1;
        m->forms = mu < 2 ? 1 : 2;
        m->kap[1] = 1;
        m->c_max[1] = n * mu - 1;
    } else if (in->tokens > 1) {
        m->kap[0] = 1;
        m->c_max[0] = n * mu - 1;
    }
    if (x->aim == EX_FIRST)
        m->kap[0] = m->c_max[0] = 0, m->forms = 1, m->in_sum = 1;
    if (x->aim == EX_OMEGA)
        m->a_max = m->kap[0] = m->c_max[0] = 0, m->forms = 1;
}

/* True when q costs no more than p anywhere; of equal ones the later is dropped. */
static bool dominated(const struct ex *x, const struct ex_item *p, const struct ex_item *q,
                      uint64_t k, uint64_t class)
{
    bool equal = p->mem == q->mem && p->host == q->host && p->pre == q->pre && p->dec == q->dec;
    if (q->mem > p->mem || q->host > p->host || q->pre > p->pre || q->dec > p->dec)
        return false;
    for (uint64_t l = 0; l < x->L; l++)
        if (x->in->layer_class[l] == class) {
            double wp = ex_omega_of(x, k, l)[p->q], wq = ex_omega_of(x, k, l)[q->q];
            if (wq > wp)
                return false;
            equal &= wq == wp;
        }
    return !equal || q->q < p->q;
}

static void set_items(struct ex *x, struct ex_model *m, const struct tsr_solver_option *o,
                      uint64_t k, uint64_t c, const struct phase *pre, const struct phase *dec)
{
    const struct tsr_solver_instance *in = x->in;
    struct ex_item                   *it = m->items + (k * x->C + c) * x->Q;
    uint32_t                          n = 0;
    for (uint32_t q = 0; q < x->Q; q++) {
        uint64_t e = (k * x->C + c) * x->Q + q;
        uint64_t host = x->host_bytes ? x->host_bytes[c * x->Q + q] : 0;
        if (isnan(o->pre_ms[e]) || isnan(o->dec_ms[e]) || !m->usable[k] || host > m->host[k] ||
            in->layer_bytes[c * x->Q + q] > m->room[k])
            continue;
        struct ex_item v = { in->layer_bytes[c * x->Q + q], host, snap(pre, o->pre_ms[e]),
                             snap(dec, o->dec_ms[e]),       q,    0 };
        uint32_t       at = n++;
        for (; at > 0 && it[at - 1].mem > v.mem; at--)
            it[at] = it[at - 1];
        it[at] = v;
    }
    /* a removed one's dominator is kept or still to come, and dominance is transitive */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool out = false;
        for (uint32_t j = 0; j < n && !out; j++)
            out = (j < kept || j > i) && dominated(x, &it[i], &it[j], k, c);
        if (!out)
            it[kept++] = it[i];
    }
    m->n_items[k * x->C + c] = kept;
}

/* Links: groups is 1 when the kind that sends does not matter. */
static void set_links(struct ex *x, struct ex_model *m, const struct tsr_solver_option *o,
                      const struct phase *pre, const struct phase *dec)
{
    uint64_t K = x->K;
    m->groups = 1;
    m->links = x->link_omega != NULL;
    for (uint64_t i = 0; i < x->V * K * K && x->aim != EX_OMEGA; i++) {
        double       *l = m->link + i * 2;
        const double *first = m->link + (i / (K * K) * K * K + i % K) * 2; /* of kind 0 */
        l[0] = snap_link(pre, o->comm_pre_ms[i]);
        l[1] = snap_link(dec, o->comm_dec_ms[i]);
        m->links |= l[0] > 0 || l[1] > 0;
        if (l[0] != first[0] || l[1] != first[1])
            m->groups = K;
    }
}

static bool model_block(struct ex *x, struct ex_model *m)
{
    uint64_t K = x->K, C = x->C;
    uint64_t items = K * C * x->Q * sizeof *m->items;
    char    *p = m->block = ex_new(x, items + K * C * 4 + K * (16 + 32 + x->V * K * 16 + 1), 1);
    if (!p)
        return false;
    m->items = (struct ex_item *)(void *)p;
    m->room = (uint64_t *)(void *)(p += items);
    m->host = (uint64_t *)(void *)(p += K * 8);
    m->end = (double *)(void *)(p += K * 8);
    m->link = (double *)(void *)(p += K * 32);
    m->n_items = (uint32_t *)(void *)(p += x->V * K * K * 16);
    m->usable = (bool *)(p + K * C * 4);
    return true;
}

static double most_of(const double *t, uint64_t n, double most)
{
    for (uint64_t i = 0; i < n; i++)
        most = t[i] > most ? t[i] : most; /* NaN never is */
    return most;
}

/* Weights of both phases: set_forms() has the forms. */
static void set_weights(const struct ex *x, const struct tsr_solver_option *o, struct phase *pre,
                        struct phase *dec)
{
    const struct tsr_solver_instance *in = x->in;
    double mu_pre = prefill_jobs(in, o), mu = counts(in->batch, o->decode_mb);
    double n = (double)(in->tokens - 1);
    bool   paper = in->objective == TSR_OBJECTIVE_PAPER && x->aim != EX_FIRST;
    pre->link = dec->link = pre->weight = dec->weight = 0;
    if (x->aim == EX_OMEGA)
        return;
    pre->weight = mu_pre;
    pre->link = paper && !(x->f_limit < INFINITY) ? mu_pre - 1 : mu_pre;
    if (x->aim == EX_FIRST)
        return;
    dec->link = paper ? (mu - 1) * n : n > 0 ? fmax(n + mu - 1, n * mu) : 0;
    dec->weight = paper ? dec->link + 1 : dec->link;
}

/* From the largest of the phase's times, a stage's and a link's. */
static void set_unit(const struct ex *x, struct phase *p, double dearest, double most, double link)
{
    /* where links count, a stage counts at most twice as much */
    p->cap = dearest / (p->link > 0 ? p->link : p->weight);
    most = p->link > 0 ? fmax(most, link) : most;
    /* at most L layers, L links and the ends */
    p->unit = ex_unit((2 * (double)x->L + 4) * (most > p->cap ? 2 * p->cap : most));
}

/* What the option adds to the ends and to omega. */
static void set_ends_of(const struct ex *x, struct ex_model *m, const struct tsr_solver_option *o)
{
    m->embed = x->in->embed_bytes;
    m->head = x->in->head_bytes;
    m->omega =
        TSR_HAS(struct tsr_solver_option, o, omega) ? rint(o->omega / x->w_unit) * x->w_unit : 0;
    /* no device has more than 2^64 - 1 bytes: a sum above that fits nowhere, like that number */
    if (TSR_HAS(struct tsr_solver_option, o, embed_bytes) &&
        __builtin_add_overflow(m->embed, o->embed_bytes, &m->embed))
        m->embed = UINT64_MAX;
    if (TSR_HAS(struct tsr_solver_option, o, head_bytes) &&
        __builtin_add_overflow(m->head, o->head_bytes, &m->head))
        m->head = UINT64_MAX;
}

bool ex_model_init(struct ex *x, struct ex_model *m, uint64_t option)
{
    const struct tsr_solver_instance *in = x->in;
    const struct tsr_solver_option   *o = in->options[option];
    uint64_t                          K = x->K, n = K * x->C * x->Q;
    m->option = option;
    if (!model_block(x, m))
        return false;
    struct phase pre, dec;
    double       most_pre = most_of(o->pre_ms, n, 0), most_dec = most_of(o->dec_ms, n, 0);
    most_pre = most_of(o->embed_pre_ms, K, most_of(o->head_pre_ms, K, most_pre));
    most_dec = most_of(o->embed_dec_ms, K, most_of(o->head_dec_ms, K, most_dec));
    set_weights(x, o, &pre, &dec);
    set_unit(x, &pre, fmin(x->dearest, x->f_limit), most_pre,
             most_of(o->comm_pre_ms, x->V * K * K, 0));
    set_unit(x, &dec, x->dearest, most_dec, most_of(o->comm_dec_ms, x->V * K * K, 0));
    /* each of L layers, L links and the ends is half a unit off */
    m->error = ((double)x->L + 1) * (pre.weight * pre.unit + dec.weight * dec.unit) +
               x->theta * ((double)x->L + 1) * x->w_unit;
    m->f_limit = x->f_limit - ((double)x->L + 1) * pre.weight * pre.unit;
    set_ends_of(x, m, o);
    for (uint64_t k = 0; k < K; k++) {
        double  *e = m->end + k * 4;
        uint64_t cap = in->kinds[k]->capacity_bytes, ws = o->workspace_bytes[k];
        m->usable[k] = ws <= cap;
        m->room[k] = ws <= cap ? cap - ws : 0;
        m->host[k] = x->host_bytes ? in->kinds[k]->host_capacity_bytes : 0;
        e[0] = snap(&pre, o->embed_pre_ms[k]);
        e[1] = snap(&dec, o->embed_dec_ms[k]);
        e[2] = snap(&pre, o->head_pre_ms[k]);
        e[3] = snap(&dec, o->head_dec_ms[k]);
        for (uint64_t c = 0; c < x->C; c++)
            set_items(x, m, o, k, c, &pre, &dec);
    }
    set_links(x, m, o, &pre, &dec);
    set_forms(x, m, o);
    return true;
}

void ex_model_free(struct ex *x, struct ex_model *m)
{
    ex_free(x, m->block);
    m->block = NULL;
}

double ex_objective(const struct ex *x, const struct ex_model *m, double sum, double r, double p,
                    double d)
{
    double v = m->kap[0] * r + m->c_max[0] * d;
    (void)x;
    if (m->forms == 2)
        v = fmax(v, m->kap[1] * r + m->c_max[1] * d);
    return sum + m->a_max * p + v;
}

double ex_value(const struct ex *x, const struct ex_model *m, const struct ex_stage *st, uint64_t n)
{
    double sum = 0, first = 0, r = 0, p = 0, d = 0, w = m->omega;
    for (uint64_t i = 0; i < n; i++) {
        sum += st[i].pre;
        r += st[i].dec;
        w += st[i].w;
        p = fmax(p, st[i].pre);
        d = fmax(d, st[i].dec);
        if (i + 1 < n) {
            const double *l = ex_link_ms(x, m, st[i + 1].link, st[i].k, st[i + 1].k);
            first += l[0];
            r += m->in_sum * l[1];
            p = fmax(p, l[0]);
            d = fmax(d, l[1]);
            w += ex_link_omega(x, st[i + 1].link, st[i].e - 1);
        }
    }
    if (w > x->w_limit || sum + first + m->a_max * p > m->f_limit)
        return INFINITY;
    return ex_objective(x, m, sum + m->in_sum * first + x->theta * w, r, p, d);
}
