/* base/event.h - what happened to a process of a job, with fields: programs read them, not the words.
 *
 *   tsr_event_say(&(struct tsr_event){ .kind = "rank-failed", .has_rank = true, .rank = 1, .process = pid },
 *                 "rank %u: %s", 1, text);
 *
 * A line of the log at level warning; under --json one line of JSON on stderr, tessera.event/1
 * (docs/guide/job-files.md). */
#ifndef TSR_BASE_EVENT_H
#define TSR_BASE_EVENT_H

#include "base/err.h"

#include <stdbool.h>

/* What is NULL or 0 is left out. */
struct tsr_event {
    const char *kind;
    int64_t     process;
    bool        has_rank, has_code;
    uint32_t    rank;
    int         code, signal; /* that a process ended with */
    const char *host;
    const char *doing; /* what the rank last did */
    const char *cause; /* why a process ended: memory, own-fault, supervisor */
    const char *then;  /* restart, stop, give-up */
};

void tsr_event_json(bool json);
void tsr_event_say(const struct tsr_event *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends this process, a thread of which does not return, with the code of the status and this sentence: the error
 * of the program, under --json as tessera.error/1. */
_Noreturn void tsr_event_end(tsr_status st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
