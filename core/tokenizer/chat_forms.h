/* tokenizer/chat_forms.h - the chat templates that are built in, as data. */
#ifndef TSR_TOKENIZER_CHAT_FORMS_H
#define TSR_TOKENIZER_CHAT_FORMS_H

#include <stdbool.h>
#include <stdint.h>

/* How a template formats a conversation.  In its texts these are placeholders for the model's own
 * tokens: */
#define TSR_CHAT_BOS "\1"
#define TSR_CHAT_EOS "\2"

enum { TSR_CHAT_SYSTEM, TSR_CHAT_USER, TSR_CHAT_ASSISTANT };

struct tsr_tokenizer_chat_form {
    const char *name;
    const char *hash[4];   /* of the texts that say so */
    const char *first;     /* at the very start */
    const char *before[3]; /* of system, user, assistant; NULL: the role is refused */
    const char *after[3];
    const char *answer;         /* at the very end */
    const char *no_system;      /* the system message of a conversation that has none, or NULL */
    const char *opening;        /* before the system message at the start, instead of before[]; the
                            * message always exists, empty if the conversation has none; or NULL */
    bool        strip[3];       /* white space around the content goes */
    bool        alternate;      /* user, assistant, user, ... */
    bool        system_once;    /* a system message only at the start */
    bool        system_in_user; /* prepended to the first user's content */
    bool        system_in_last; /* ... of the last message, which is a user's then */
    bool        drop_system;
    bool        drop_empty_system;
};

/* NULL after the last. */
const struct tsr_tokenizer_chat_form *tsr_tokenizer_chat_form_get(uint64_t i);
/* The one of a template's text by its hash; NULL: it is not known. */
const struct tsr_tokenizer_chat_form *tsr_tokenizer_chat_form_find(const char *hash);

#endif
