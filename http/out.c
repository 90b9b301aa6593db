/* Frames to the engine, by a thread of their own: a full pipe holds up no connection. */
#include "http.h"

#include <stdlib.h>
#include <unistd.h>

struct item {
    struct item           *next;
    struct tsr_serve_frame f;
    char                  *payload;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  changed = PTHREAD_COND_INITIALIZER;
static struct item    *first, **last = &first;
static bool            over;
static pthread_t       thread;

bool http_out(uint32_t kind, uint64_t id, uint32_t status, char *payload, size_t length)
{
    struct item *i = calloc(1, sizeof *i);
    if (!i) {
        free(payload);
        return false;
    }
    i->payload = payload;
    i->f = (struct tsr_serve_frame){
        .kind = kind, .id = id, .status = status, .length = (uint32_t)length, .payload = payload
    };
    (void)pthread_mutex_lock(&lock);
    *last = i;
    last = &i->next;
    (void)pthread_cond_signal(&changed);
    (void)pthread_mutex_unlock(&lock);
    return true;
}

static void *work(void *arg)
{
    (void)arg;
    for (;;) {
        (void)pthread_mutex_lock(&lock);
        while (!first && !over)
            (void)pthread_cond_wait(&changed, &lock);
        struct item *i = first;
        if (i) {
            first = i->next;
            last = first ? last : &first;
        }
        (void)pthread_mutex_unlock(&lock);
        if (!i)
            return NULL;
        /* a failure means that the engine is gone; the main thread sees that at the other pipe */
        (void)tsr_serve_frame_write(STDOUT_FILENO, &i->f);
        free(i->payload);
        free(i);
    }
}

bool http_out_start(void)
{
    return pthread_create(&thread, NULL, work, NULL) == 0;
}

void http_out_end(void)
{
    (void)pthread_mutex_lock(&lock);
    over = true;
    (void)pthread_cond_signal(&changed);
    (void)pthread_mutex_unlock(&lock);
    (void)pthread_join(thread, NULL);
}
