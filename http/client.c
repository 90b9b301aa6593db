/* Connections: when a client did something last, and the end of those that are slow. */
#include "http.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

pthread_mutex_t            http_lock = PTHREAD_MUTEX_INITIALIZER;
static struct http_client *clients;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void http_client_acts(struct http_client *k)
{
    if (k)
        k->since = now();
}

uint64_t http_connections(void)
{
    uint64_t n = 0;
    (void)pthread_mutex_lock(&http_lock);
    for (const struct http_client *k = clients; k; k = k->next)
        n++;
    (void)pthread_mutex_unlock(&http_lock);
    return n;
}

void http_on_connection(void *cls, struct MHD_Connection *c, void **socket_context,
                        enum MHD_ConnectionNotificationCode what)
{
    struct http_client *k = *socket_context;
    (void)cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        k = info ? calloc(1, sizeof *k) : NULL;
        if (!k)
            return;
        k->socket = info->connect_fd;
        k->since = now();
        (void)pthread_mutex_lock(&http_lock);
        k->next = clients;
        k->at = &clients;
        if (clients)
            clients->at = &k->next;
        clients = k;
        (void)pthread_mutex_unlock(&http_lock);
        *socket_context = k;
    } else if (k) {
        (void)pthread_mutex_lock(&http_lock);
        *k->at = k->next;
        if (k->next)
            k->next->at = k->at;
        (void)pthread_mutex_unlock(&http_lock);
        free(k);
        *socket_context = NULL;
    }
}

void http_end_slow(void)
{
    double t = now();
    (void)pthread_mutex_lock(&http_lock);
    for (const struct http_client *k = clients; k; k = k->next)
        if (!k->waits && t - k->since > http_config.timeout)
            (void)shutdown(k->socket, SHUT_RDWR);
    (void)pthread_mutex_unlock(&http_lock);
}
