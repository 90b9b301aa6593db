/* messages.h - one message on a device: a codec, its wire there, and buffers with something around what
 * is read and written. */
#ifndef TSR_TEST_MESSAGES_H
#define TSR_TEST_MESSAGES_H

#include "pair.h"
#include "plugin/spec.h"
#include "tessera/backend_codec.h"

struct message_codec {
    struct tsr_plugin_spec     spec;
    const struct tsr_codec_v1 *t;
    void                      *self;
};
/* text: "mx:block=16"; false: p->err. */
bool message_codec_open(struct pair *p, struct tsr_registry *r, struct message_codec *c,
                        const char *text);
void message_codec_close(struct message_codec *c);

struct message {
    const struct message_codec        *c;
    const struct tsr_backend_codec_v1 *t;
    const char                        *what; /* for messages */
    uint32_t                           site, source;
    uint64_t                           rows, cols, bytes;  /* bytes of the message */
    uint64_t                           ldx, x_at, wire_at; /* elements between rows; places */
    void                              *wire, *stream, *x_buffer, *wire_buffer;
};
/* what, rows, cols, site and source are set; gaps are drawn. */
bool message_open(struct pair *p, struct message *m, const struct message_codec *c);
void message_close(struct pair *p, struct message *m);

/* On the device: x [rows, cols] dense to a message; a message to x, or, with add, onto it.  False as well
 * where a byte beside them has changed. */
bool message_encode(struct pair *p, const struct message *m, const float *x, uint8_t *wire);
bool message_decode(struct pair *p, const struct message *m, const uint8_t *wire, float *x,
                    bool add);
/* The same by the codec itself. */
bool message_codec_encode(struct pair *p, const struct message *m, const float *x, uint8_t *wire);
bool message_codec_decode(struct pair *p, const struct message *m, const uint8_t *wire, float *x,
                          bool add);

/* codecs.c: `count` drawn messages through every wire; TSR_TEST_ALL=1 in the environment: every option
 * of mx beside them.  False at the first that differs. */
bool pair_check_codecs(struct pair *p, struct tsr_registry *r, uint64_t count);
/* codec_golden.c: the recorded vectors of mx and int4_bf16 under `folder`. */
bool pair_check_vectors(struct pair *p, struct tsr_registry *r, const char *folder);

#endif
