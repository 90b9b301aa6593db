/* random_model FOLDER VOCAB HIDDEN LAYERS FFN HEADS KV_HEADS: a Llama of random BF16 weights. */
#include "checkpoint/random_model.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          v[6];
    if (argc != 8)
        return 2;
    for (int i = 0; i < 6; i++)
        v[i] = strtoull(argv[2 + i], NULL, 10);
    struct tsr_checkpoint_random_shape s = { .vocab = v[0],
                                             .hidden = v[1],
                                             .layers = v[2],
                                             .ffn = v[3],
                                             .heads = v[4],
                                             .kv_heads = v[5],
                                             .max_positions = 512,
                                             .dtype = TSR_BF16,
                                             .tied = true,
                                             .seed = 1 };
    if (tsr_checkpoint_random_model_write(argv[1], &s, NULL, &e.err) == TSR_OK)
        return 0;
    (void)fprintf(stderr, "%s\n", e.text);
    return 1;
}
