/* llama_quantize IN.gguf OUT.gguf FILE_TYPE IMATRIX.gguf - llama.cpp's own quantization, weighted by an importance matrix of its
 * GGUF form; FILE_TYPE is a number, as in general.file_type. */
#include "ggml.h"
#include "gguf.h"
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUMS ".in_sum2"

static float *means(const struct ggml_tensor *sums, const struct ggml_tensor *counts)
{
    int64_t cols = sums->ne[0], rows = sums->ne[1];
    float  *v = malloc((size_t)(cols * rows) * sizeof *v);
    for (int64_t i = 0; v && i < cols * rows; i++) {
        float count = ((const float *)counts->data)[i / cols];
        v[i] = count > 0 ? ((const float *)sums->data)[i] / count : 1;
    }
    return v;
}

/* Ends with an entry without a name; NULL: the file cannot be read. */
static struct llama_model_imatrix_data *load(const char *path)
{
    struct ggml_context    *ctx = NULL;
    struct gguf_init_params p = { .no_alloc = false, .ctx = &ctx };
    struct gguf_context    *g = gguf_init_from_file(path, p);
    if (!g)
        return NULL;
    int64_t                          n = gguf_get_n_tensors(g), k = 0;
    struct llama_model_imatrix_data *m = calloc((size_t)n + 1, sizeof *m);
    for (int64_t i = 0; m && i < n; i++) {
        const char *name = gguf_get_tensor_name(g, i), *end = strstr(name, SUMS);
        char        of[128], counts[160];
        if (!end)
            continue;
        (void)snprintf(of, sizeof of, "%.*s", (int)(end - name), name);
        (void)snprintf(counts, sizeof counts, "%s.counts", of);
        const struct ggml_tensor *s = ggml_get_tensor(ctx, name), *c = ggml_get_tensor(ctx, counts);
        if (!c)
            return NULL;
        m[k].name = strdup(of);
        m[k].data = means(s, c);
        m[k++].size = (size_t)(s->ne[0] * s->ne[1]);
    }
    return m;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    struct llama_model_quantize_params p = llama_model_quantize_default_params();
    p.ftype = (enum llama_ftype)atoi(argv[3]);
    p.imatrix = load(argv[4]);
    if (!p.imatrix) {
        (void)fprintf(stderr, "%s cannot be read\n", argv[4]);
        return 1;
    }
    llama_backend_init();
    return llama_model_quantize(argv[1], argv[2], &p) != 0;
}
