/* The forward pass, and the file that says where its numbers lie: a line
 *
 *   shape HIDDEN INTER LAYERS HEADS KV_HEADS EPS THETA VOCAB
 *
 * then one for each tensor and each linear with residuals:
 *
 *   tensor NAME FILE AT TYPE NUMBERS
 *   part LINEAR FILE CODES STRIDE SCALES OUTPUTS */
#include "forward.h"

static const char *const linear_names[LINEARS] = { "self_attn.q_proj", "self_attn.k_proj",
                                                   "self_attn.v_proj", "self_attn.o_proj",
                                                   "mlp.gate_proj",    "mlp.up_proj",
                                                   "mlp.down_proj" };
static const char *const site_names[SITES] = { "attn_in", "o_in", "ffn_in", "down_in" };

int site_of(int linear)
{
    return linear <= V ? QKV : linear == O ? OUT : linear <= UP ? GATE_UP : DOWN;
}

uint64_t site_cols(const struct model *m, int site)
{
    return site == DOWN ? m->inter : m->hidden;
}

/* ---- reading --------------------------------------------------------------------------- */

static void read_linear(struct model *m, struct linear *l, int which)
{
    uint64_t kv = m->hidden / m->heads * m->kv_heads;
    l->rows = which == K || which == V ? kv : which == GATE || which == UP ? m->inter : m->hidden;
    l->cols = site_cols(m, site_of(which));
}

/* Where the numbers of a tensor belong; NULL: it is not needed.  *n: how many there must be. */
static float **place(struct model *m, const char *name, uint64_t *n)
{
    unsigned long long at;
    char               rest[200], want[200];
    *n = m->hidden;
    if (strcmp(name, "model.norm.weight") == 0)
        return &m->norm;
    *n = m->hidden * m->vocab;
    if (strcmp(name, "model.embed_tokens.weight") == 0)
        return &m->embed;
    if (strcmp(name, "lm_head.weight") == 0)
        return &m->head;
    if (sscanf(name, "model.layers.%llu.%199s", &at, rest) != 2 || at >= m->layers)
        return NULL;
    struct layer *y = &m->layer[at];
    for (int i = 0; i < LINEARS; i++) {
        *n = y->lin[i].rows * y->lin[i].cols;
        (void)snprintf(want, sizeof want, "%s.weight", linear_names[i]);
        if (strcmp(rest, want) == 0)
            return &y->lin[i].w;
    }
    for (int s = 0; s < SITES; s++) {
        *n = site_cols(m, s);
        size_t len = strlen(site_names[s]);
        if (strncmp(rest, site_names[s], len) == 0 && rest[len] == '.')
            return strcmp(rest + len, ".top") == 0      ? &y->top[s]
                   : strcmp(rest + len, ".meansq") == 0 ? &y->meansq[s]
                   : strcmp(rest + len, ".lost") == 0   ? &y->lost[s]
                                                        : NULL;
    }
    *n = m->hidden;
    return strcmp(rest, "input_layernorm.weight") == 0            ? &y->norm[0]
           : strcmp(rest, "post_attention_layernorm.weight") == 0 ? &y->norm[1]
                                                                  : NULL;
}

static void read_tensor(struct model *m, FILE *f)
{
    char               name[200], file[1000], type[20];
    unsigned long long at, n;
    uint64_t           want;
    if (fscanf(f, "%199s %999s %llu %19s %llu", name, file, &at, type, &n) != 5)
        die("a line of a tensor is wrong", name);
    float **p = place(m, name, &want);
    if (!p)
        return;
    if (*p || n != want)
        die("twice, or of another size", name);
    *p = read_numbers(file, at, type, n);
}

static void read_residuals(struct model *m, FILE *f)
{
    char               name[200], file[1000];
    unsigned long long v[4], at;
    int                i = 0, end = 0;
    if (fscanf(f, "%199s %999s %llu %llu %llu %llu", name, file, &v[0], &v[1], &v[2], &v[3]) != 6 ||
        sscanf(name, "model.layers.%llu.%n", &at, &end) != 1 || at >= m->layers || end == 0)
        die("a line of residuals is wrong", name);
    while (i < LINEARS && strcmp(linear_names[i], name + end) != 0)
        i++;
    if (i == LINEARS || m->layer[at].lin[i].part.codes || v[3] != m->layer[at].lin[i].rows)
        die("unknown, twice, or of another size", name);
    m->layer[at].lin[i].part = read_part(file, v[0], v[1], v[2], v[3], m->layer[at].lin[i].cols);
}

static void check_whole(const struct model *m)
{
    bool whole = m->embed && m->norm;
    for (uint64_t l = 0; l < m->layers; l++)
        for (int i = 0; i < LINEARS; i++)
            whole = whole && m->layer[l].lin[i].w && m->layer[l].norm[i % 2];
    if (!whole)
        die("a tensor is missing", "weights");
}

struct model *read_model(const char *path)
{
    static struct model *kept; /* to the end of the process */
    FILE                *f = fopen(path, "r");
    struct model        *m = kept = grow(NULL, 1, sizeof *m);
    unsigned long long   v[6];
    char                 kind[20];
    if (!f)
        die("cannot open", path);
    *m = (struct model){ 0 };
    if (fscanf(f, "shape %llu %llu %llu %llu %llu %lf %lf %llu", &v[0], &v[1], &v[2], &v[3], &v[4],
               &m->eps, &m->theta, &v[5]) != 8 ||
        v[3] == 0)
        die("no shape", path);
    m->hidden = v[0];
    m->inter = v[1];
    m->layers = v[2];
    m->heads = v[3];
    m->kv_heads = v[4];
    m->vocab = v[5];
    m->layer = grow(NULL, m->layers, sizeof *m->layer);
    memset(m->layer, 0, m->layers * sizeof *m->layer);
    for (uint64_t l = 0; l < m->layers; l++)
        for (int i = 0; i < LINEARS; i++)
            read_linear(m, &m->layer[l].lin[i], i);
    while (fscanf(f, "%19s", kind) == 1) {
        if (strcmp(kind, "tensor") == 0)
            read_tensor(m, f);
        else if (strcmp(kind, "part") == 0)
            read_residuals(m, f);
        else
            die("unknown line", kind);
    }
    (void)fclose(f);
    check_whole(m);
    return m;
}

/* ---- the pass ---------------------------------------------------------------------------- */

struct pass {
    const struct model *m;
    struct selection   *s;
    on_input            tap;
    void               *ctx;
    uint64_t            n;
    uint32_t           *list;
};

static double *fresh(uint64_t n)
{
    double *v = grow(NULL, n, sizeof *v);
    for (uint64_t i = 0; i < n; i++)
        v[i] = 0;
    return v;
}

/* The linears of a site on x [n, cols], into y[linear] [n, rows], with what is compensated. */
static void run_site(const struct pass *p, uint64_t layer, int site, const double *x, double **y)
{
    uint64_t cols = site_cols(p->m, site);
    for (uint64_t t = 0; t < p->n; t++) {
        const double *in = x + t * cols;
        uint64_t      taken = p->s && p->s->way && p->s->k[site]
                                  ? choose(p->m, p->s, layer, site, t, in, p->list)
                                  : 0;
        if (p->tap)
            p->tap(p->ctx, layer, site, t, in, cols);
        for (int i = 0; i < LINEARS; i++) {
            const struct linear *l = &p->m->layer[layer].lin[i];
            for (uint64_t r = 0; r < l->rows && site_of(i) == site; r++) {
                double sum = 0;
                for (uint64_t c = 0; c < cols; c++)
                    sum += in[c] * (double)l->w[r * cols + c];
                for (uint64_t c = 0; c < taken; c++)
                    sum += in[p->list[c]] * value(&l->part, p->list[c], r);
                y[i][t * l->rows + r] = sum;
            }
        }
    }
}

static void normalize(const double *x, const float *gain, double eps, uint64_t n, uint64_t cols,
                      double *y)
{
    for (uint64_t t = 0; t < n; t++) {
        double squares = 0;
        for (uint64_t c = 0; c < cols; c++)
            squares += x[t * cols + c] * x[t * cols + c];
        for (uint64_t c = 0; c < cols; c++)
            y[t * cols + c] =
                x[t * cols + c] / sqrt(squares / (double)cols + eps) * (double)gain[c];
    }
}

static void rotate(double *x, uint64_t n, uint64_t heads, uint64_t d, double theta)
{
    for (uint64_t t = 0; t < n; t++)
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t i = 0; i < d / 2; i++) {
                double *v = x + (t * heads + h) * d;
                double  angle = (double)t * pow(theta, -2 * (double)i / (double)d);
                double  a = v[i], b = v[i + d / 2];
                v[i] = a * cos(angle) - b * sin(angle);
                v[i + d / 2] = b * cos(angle) + a * sin(angle);
            }
}

static void attend(const struct model *m, uint64_t n, const double *q, const double *k,
                   const double *v, double *out)
{
    uint64_t d = m->hidden / m->heads, width = m->kv_heads * d;
    double  *e = fresh(n);
    for (uint64_t t = 0; t < n; t++)
        for (uint64_t h = 0; h < m->heads; h++) {
            uint64_t from = h / (m->heads / m->kv_heads) * d;
            double   all = 0;
            for (uint64_t j = 0; j <= t; j++) {
                double dot = 0;
                for (uint64_t i = 0; i < d; i++)
                    dot += q[(t * m->heads + h) * d + i] * k[j * width + from + i];
                all += e[j] = exp(dot / sqrt((double)d));
            }
            for (uint64_t i = 0; i < d; i++) {
                double sum = 0;
                for (uint64_t j = 0; j <= t; j++)
                    sum += e[j] / all * v[j * width + from + i];
                out[(t * m->heads + h) * d + i] = sum;
            }
        }
    free(e);
}

static void run_layer(const struct pass *p, uint64_t layer, double *x, double *in, double *wide,
                      double **y)
{
    const struct model *m = p->m;
    const struct layer *l = &m->layer[layer];
    uint64_t            h = m->hidden, d = h / m->heads;
    normalize(x, l->norm[0], m->eps, p->n, h, in);
    run_site(p, layer, QKV, in, y);
    rotate(y[Q], p->n, m->heads, d, m->theta);
    rotate(y[K], p->n, m->kv_heads, d, m->theta);
    attend(m, p->n, y[Q], y[K], y[V], in);
    run_site(p, layer, OUT, in, y);
    for (uint64_t i = 0; i < p->n * h; i++)
        x[i] += y[O][i];
    normalize(x, l->norm[1], m->eps, p->n, h, in);
    run_site(p, layer, GATE_UP, in, y);
    for (uint64_t i = 0; i < p->n * m->inter; i++)
        wide[i] = y[GATE][i] / (1 + exp(-y[GATE][i])) * y[UP][i];
    run_site(p, layer, DOWN, wide, y);
    for (uint64_t i = 0; i < p->n * h; i++)
        x[i] += y[DOWN_PROJ][i];
}

void forward(const struct model *m, const uint32_t *ids, uint64_t n, struct selection *s,
             double *logits, on_input tap, void *ctx)
{
    uint64_t    h = m->hidden, most = m->inter > h ? m->inter : h;
    double     *x = fresh(n * h), *in = fresh(n * h), *wide = fresh(n * m->inter), *y[LINEARS];
    struct pass p = { m, s, tap, ctx, n, grow(NULL, most, sizeof(uint32_t)) };
    for (int i = 0; i < LINEARS; i++)
        y[i] = fresh(n * m->layer[0].lin[i].rows);
    for (uint64_t t = 0; t < n; t++) {
        if (ids[t] >= m->vocab)
            die("an id is beyond the vocabulary", "ids");
        for (uint64_t c = 0; c < h; c++)
            x[t * h + c] = (double)m->embed[ids[t] * h + c];
    }
    for (uint64_t l = 0; l < m->layers; l++)
        run_layer(&p, l, x, in, wide, y);
    normalize(x, m->norm, m->eps, n, h, in);
    const float *head = m->head ? m->head : m->embed;
    for (uint64_t t = 0; t < n && logits; t++)
        for (uint64_t o = 0; o < m->vocab; o++) {
            double sum = 0;
            for (uint64_t c = 0; c < h; c++)
                sum += in[t * h + c] * (double)head[o * h + c];
            logits[t * m->vocab + o] = sum;
        }
    for (int i = 0; i < LINEARS; i++)
        free(y[i]);
    free(x);
    free(in);
    free(wide);
    free(p.list);
}
