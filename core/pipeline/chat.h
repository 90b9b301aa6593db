/* pipeline/chat.h - the chat template of steps that take conversations: the model's, or another. */
#ifndef TSR_PIPELINE_CHAT_H
#define TSR_PIPELINE_CHAT_H

#include "pipeline/step.h"
#include "tokenizer/chat.h"

struct tsr_pipeline_chat_keys {
    const char *template, *date;
};
/* Not part of a job's identity as options: what they lead to is (tsr_tokenizer_chat_about()). */
#define TSR_PIPELINE_CHAT_OPTIONS(S, k)                                                            \
    { .name = "template",                                                                          \
      .help = "Chat template: the name of one of the model's, or a file. Default: the model's "    \
              "default.",                                                                          \
      .unit = "NAME|FILE",                                                                         \
      .type = TSR_OPT_STRING,                                                                      \
      .flags = TSR_OPT_UNSAID,                                                                     \
      .offset = TSR_FIELD(S, k.template, const char *),                                            \
      .def = { .s = "" } },                                                                        \
    {                                                                                              \
        .name = "date", .help = "Date that a chat template sees, as YYYY-MM-DD.", .unit = "DATE",  \
        .type = TSR_OPT_STRING, .flags = TSR_OPT_UNSAID,                                           \
        .offset = TSR_FIELD(S, k.date, const char *), .def = {                                     \
            .s = "2024-07-26"                                                                      \
        }                                                                                          \
    }

/* Reports a date that is none. */
void tsr_pipeline_chat_check(const struct tsr_pipeline_chat_keys *k,
                             const struct tsr_config_node *node, struct tsr_diag *d);
/* The template for the job's model and its tokenizer, which exists.  TSR_E_INPUT: there is none, or it cannot run. */
tsr_status tsr_pipeline_chat_load(struct tsr_pipeline_job             *job,
                                  const struct tsr_pipeline_chat_keys *k, struct tsr_chat **c,
                                  struct tsr_err *err);

#endif
