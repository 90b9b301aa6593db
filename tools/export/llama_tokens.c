/* llama_tokens FILE.gguf: the ids that llama.cpp gives each line of standard input, special tokens in
 * the text recognised, as `tessera tokenize --jsonl` prints them. */
#include "llama.h"

#include <stdio.h>
#include <string.h>

#define MOST 8192

int main(int argc, char **argv)
{
    static char               line[MOST];
    static llama_token        ids[MOST];
    struct llama_model_params mp = llama_model_default_params();
    mp.vocab_only = true;
    struct llama_model *model = argc == 2 ? llama_model_load_from_file(argv[1], mp) : NULL;
    if (!model)
        return 1;
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    while (fgets(line, sizeof line, stdin)) {
        int n = llama_tokenize(vocab, line, (int)strcspn(line, "\n"), ids, MOST, true, true);
        if (n < 0)
            return 1;
        printf("{\"ids\":[");
        for (int i = 0; i < n; i++)
            printf("%s%d", i ? "," : "", ids[i]);
        printf("]}\n");
    }
    return 0;
}
