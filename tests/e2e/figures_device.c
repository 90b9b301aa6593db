#include "figures_device.h"

struct point  point[MOST];
struct kernel kernel[64];
struct fit    fit[MOST];
int           points, kernels, fits, knots[2];
real          knot[2][8], peak, overhead[2];

/* ---- reading ---------------------------------------------------------------------------- */

static int phase_of(const char *word)
{
    if (strcmp(word, "prefill") != 0 && strcmp(word, "decode") != 0)
        die("not a phase", word);
    return word[0] == 'd' ? DECODE : PREFILL;
}

/* kernel, phase, the shape and v, s, t, as points and workloads have them. */
bool parse_layer(const char *line, struct point *p, int *used)
{
    char phase[16];
    real hidden, ffn, heads, kv_heads, dim, gated;
    if (sscanf(line, "%31s %15s %Lf %Lf %Lf %Lf %Lf %Lf %Lf %Lf %Lf%n", p->kernel, phase, &hidden,
               &ffn, &heads, &kv_heads, &dim, &gated, &p->v, &p->s, &p->t, used) != 11)
        return false;
    p->phase = phase_of(phase);
    /* q and output, k and v, and two or three matrices of the feed-forward */
    p->w = (struct layer){ .weights = 2 * hidden * heads * dim + 2 * hidden * kv_heads * dim +
                                      (2 + gated) * hidden * ffn,
                           .hidden = hidden,
                           .attend = heads * dim,
                           .kv = 2 * kv_heads * dim };
    return true;
}

static void parse_device(const char *line)
{
    struct kernel *k = &kernel[kernels];
    char           word[16];
    real           x;
    int            used = 0;
    if (points == MOST || kernels == 64)
        die("too long", line);
    if (sscanf(line, "peak %Lf", &peak) == 1 ||
        sscanf(line, "overhead %Lf %Lf", &overhead[0], &overhead[1]) == 2)
        return;
    if (sscanf(line, "knot %15s %Lf", word, &x) == 2)
        knot[phase_of(word)][knots[phase_of(word)]++] = x;
    else if (sscanf(line, "kernel %31s %Lf %Lf %Lf %Lf %Lf %Lf %Lf %Lf", k->name, &k->above,
                    &k->ops, &k->compute[0], &k->read[0], &k->compute[1], &k->read[1], &k->bytes,
                    &k->convert) == 9)
        kernels++;
    else if (strncmp(line, "point ", 6) == 0 && parse_layer(line + 6, &point[points], &used) &&
             sscanf(line + 6 + used, "%Lf", &point[points].ms) == 1)
        points++;
    else
        die("not of a device", line);
}

/* "K PHASE more up_to pooled weights hidden attend kv points error c c c c c" */
static void parse_fit(const char *line)
{
    struct fit *f = &fit[fits];
    char        phase[16];
    int         pooled = 0;
    if (fits == MOST ||
        sscanf(line, "%31s %15s %Lf %Lf %d %Lf %Lf %Lf %Lf %Lf %Lf %Lf %Lf %Lf %Lf %Lf", f->kernel,
               phase, &f->more, &f->up_to, &pooled, &f->w.weights, &f->w.hidden, &f->w.attend,
               &f->w.kv, &f->points, &f->error, &f->c[0], &f->c[1], &f->c[2], &f->c[3],
               &f->c[4]) != 16)
        die("not a regression", line);
    f->phase = phase_of(phase);
    f->pooled = pooled != 0;
    fits++;
}

void read_lines(const char *path, void (*parse)(const char *line))
{
    FILE *f = fopen(path, "r");
    char  line[1024];
    if (!f)
        die("cannot open", path);
    while (fgets(line, sizeof line, f))
        parse(line);
    (void)fclose(f);
}

void read_device(const char *path)
{
    read_lines(path, parse_device);
}

void read_regressions(const char *path)
{
    read_lines(path, parse_fit);
}

/* ---- features ----------------------------------------------------------------------------- */

real tokens_of(const struct point *p)
{
    return p->phase == PREFILL ? p->v * p->s : p->v;
}

void features(const struct point *p, real f[FEATURES])
{
    const struct layer *w = &p->w;
    const real          prefill[] = { w->weights, p->v * w->hidden, p->s * w->hidden,
                                      p->v * p->s * w->weights,
                                      p->v * p->s * (p->s + 2 * p->t) * w->attend };
    const real          decode[] = { w->weights, p->v * w->weights, p->v * (p->t + 1) * w->kv,
                                     (p->t + 1) * w->hidden, 0 };
    memcpy(f, p->phase == PREFILL ? prefill : decode, FEATURES * sizeof *f);
}

real evaluate(const struct fit *f, const struct point *p)
{
    real x[FEATURES], ms = 0;
    features(p, x);
    for (int i = 0; i < FEATURES; i++)
        ms += f->c[i] * x[i];
    return ms;
}

bool is_same(real a, real b)
{
    return a <= b && a >= b;
}

bool same_shape(const struct layer *a, const struct layer *b)
{
    return is_same(a->weights, b->weights) && is_same(a->hidden, b->hidden) &&
           is_same(a->attend, b->attend) && is_same(a->kv, b->kv);
}

bool belongs(const struct fit *f, const struct point *p)
{
    return strcmp(f->kernel, p->kernel) == 0 && f->phase == p->phase && tokens_of(p) > f->more &&
           tokens_of(p) <= f->up_to && (f->pooled || same_shape(&f->w, &p->w));
}
