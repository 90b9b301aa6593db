/* batch/messages.h - the conversation of a request as token ids. */
#ifndef TSR_BATCH_MESSAGES_H
#define TSR_BATCH_MESSAGES_H

#include "tokenizer/chat.h"

/* Appends the ids of "messages", with "tools" and "chat_template_kwargs", of a request's body. */
tsr_status tsr_batch_messages(const json_t *body, const struct tsr_chat *chat, bool allow_special,
                              struct tsr_tokenizer_ids *ids, struct tsr_err *err);

#endif
