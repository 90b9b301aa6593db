/* residuals - errors that compensation leaves, computed again from the tensors of its file (docs/formats/compensation.md),
 * in long double.  No code of the program is in it.
 *
 *   residuals left A AT TYPE B AT TYPE ROWS COLS BITS FILE PART
 *       squared error of B [rows, cols] against A after the codes of PART are added to it
 *   residuals curve MODEL ROW TYPE GAIN TYPE COLS EPS BITS FILE PART...
 *       of the input that a row of the embedding gives a first layer (its root mean square norm): magnitudes at 65 points of
 *       their descending order, and mean squares of what outputs lack when the channels before a point are added back
 *
 * PART, of one linear: CODES STRIDE SCALES OUTPUTS; places in FILE, STRIDE bytes from one input's codes to the next's. */
#include "figures.h"

struct part {
    uint64_t       stride, outputs;
    unsigned char *codes;
    float         *scales;
};

static struct part read_part(const char *path, char **at, uint64_t cols)
{
    struct part p = { .stride = number(at[1]), .outputs = number(at[3]) };
    FILE       *f = fopen(path, "rb");
    uint64_t    row = (p.outputs + 1) / 2;
    p.codes = grow(NULL, cols * p.stride, 1);
    if (!f)
        die("cannot open", path);
    for (uint64_t c = 0; c < cols;
         c++) /* the last row of several linears ends before a stride does */
        if (fseek(f, (long)(number(at[0]) + c * p.stride), SEEK_SET) != 0 ||
            fread(p.codes + c * p.stride, 1, row, f) != row)
            die("too short", path);
    (void)fclose(f);
    p.scales = read_numbers(path, number(at[2]), "F16", p.outputs);
    return p;
}

/* What is added to the weight of an output in a channel; two codes a byte, the lower first. */
static real value(const struct part *p, uint64_t channel, uint64_t output)
{
    unsigned byte = p->codes[channel * p->stride + output / 2];
    return ((real)(output % 2 ? byte >> 4 : byte & 15) - 8) * (real)p->scales[output];
}

static void four_bits(const char *bits)
{
    if (number(bits) != 4)
        die("not 4 bits", bits);
}

static int left(char **a)
{
    uint64_t rows = number(a[6]), cols = number(a[7]);
    float   *was = read_numbers(a[0], number(a[1]), a[2], rows * cols);
    float   *is = read_numbers(a[3], number(a[4]), a[5], rows * cols);
    real     error = 0;
    four_bits(a[8]);
    struct part p = read_part(a[9], a + 10, cols);
    if (p.outputs != rows)
        die("not as many outputs as rows", a[13]);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++) {
            real e = (real)was[r * cols + c] - (real)is[r * cols + c] - value(&p, c, r);
            error += e * e;
        }
    (void)printf("%.17Lg\n", error);
    free(was);
    free(is);
    free(p.codes);
    free(p.scales);
    return 0;
}

struct input {
    real     x;
    uint64_t channel;
};

static int by_magnitude(const void *a, const void *b)
{
    const struct input *p = a, *q = b;
    real                x = fabsl(p->x), y = fabsl(q->x);
    if (x < y || x > y)
        return x < y ? 1 : -1;
    return p->channel < q->channel ? -1 : 1;
}

/* Mean square over all outputs of what the channels from `from` on make of them. */
static real lacking(const struct input *in, uint64_t from, uint64_t cols, const struct part *part,
                    uint64_t parts)
{
    real     squares = 0;
    uint64_t outputs = 0;
    for (uint64_t l = 0; l < parts; l++) {
        for (uint64_t o = 0; o < part[l].outputs; o++) {
            real sum = 0;
            for (uint64_t i = from; i < cols; i++)
                sum += in[i].x * value(&part[l], in[i].channel, o);
            squares += sum * sum;
        }
        outputs += part[l].outputs;
    }
    return squares / (real)outputs;
}

static int curve(char **a, uint64_t parts)
{
    uint64_t      cols = number(a[5]);
    float        *row = read_numbers(a[0], number(a[1]), a[2], cols);
    float        *gain = read_numbers(a[0], number(a[3]), a[4], cols);
    struct input *in = grow(NULL, cols, sizeof *in);
    struct part  *part = grow(NULL, parts, sizeof *part);
    real          squares = 0;
    four_bits(a[7]);
    for (uint64_t l = 0; l < parts; l++)
        part[l] = read_part(a[8], a + 9 + 4 * l, cols);
    for (uint64_t c = 0; c < cols; c++)
        squares += (real)row[c] * (real)row[c];
    real root = sqrtl(squares / (real)cols + strtold(a[6], NULL));
    for (uint64_t c = 0; c < cols; c++)
        in[c] = (struct input){ (real)row[c] / root * (real)gain[c], c };
    qsort(in, cols, sizeof *in, by_magnitude);
    (void)printf("{\"magnitude\": [");
    for (uint64_t p = 0; p <= 64; p++)
        (void)printf("%s%.17Lg", p ? ", " : "", fabsl(in[p < 64 ? p * cols / 64 : cols - 1].x));
    (void)printf("], \"sorted\": [");
    for (uint64_t p = 0; p <= 64; p++)
        (void)printf("%s%.17Lg", p ? ", " : "", lacking(in, p * cols / 64, cols, part, parts));
    (void)printf("]}\n");
    for (uint64_t l = 0; l < parts; l++) {
        free(part[l].codes);
        free(part[l].scales);
    }
    free(part);
    free(row);
    free(gain);
    free(in);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 16 && strcmp(argv[1], "left") == 0)
        return left(argv + 2);
    if (argc > 14 && (argc - 11) % 4 == 0 && strcmp(argv[1], "curve") == 0)
        return curve(argv + 2, ((uint64_t)argc - 11) / 4);
    die("usage", "residuals left A AT TYPE B AT TYPE ROWS COLS BITS FILE PART | residuals curve "
                 "MODEL ROW TYPE GAIN TYPE COLS EPS BITS FILE PART...");
    return 2;
}
