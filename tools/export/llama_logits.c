/* llama_logits [-c CONTEXT] FILE.gguf OUT ID...: the logits of llama.cpp for token ids, as raw F32.  It makes a context of 512
 * tokens, or of as many as are named. */
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    uint32_t context = 512;
    if (argc > 2 && strcmp(argv[1], "-c") == 0) {
        context = (uint32_t)strtoul(argv[2], NULL, 10);
        argc -= 2;
        argv += 2;
    }
    if (argc < 4 || context == 0)
        return 2;
    int                       n = argc - 3;
    struct llama_model_params mp = llama_model_default_params();
    struct llama_model       *model = llama_model_load_from_file(argv[1], mp);
    if (!model)
        return 1;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = context;
    cp.n_batch = cp.n_ubatch = context;
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *ctx = llama_init_from_model(model, cp);
    struct llama_batch    batch = llama_batch_init(n, 0, 1);
    if (!ctx)
        return 1;
    batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        batch.token[i] = (llama_token)strtol(argv[3 + i], NULL, 10);
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    FILE *out = fopen(argv[2], "wb");
    if (!out || llama_decode(ctx, batch) != 0)
        return 1;
    size_t vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < n; i++)
        if (fwrite(llama_get_logits_ith(ctx, i), sizeof(float), vocab, out) != vocab)
            return 1;
    return fclose(out) == 0 ? 0 : 1;
}
