/* Numbers for texts: a list that only grows. */
#include "config/names.h"

#include "base/mem.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char           *names[TSR_CONFIG_NAMES_MOST];
static int             n_names;

static bool is_name(const char *s)
{
    if (!isalpha((unsigned char)*s) || strlen(s) > 255)
        return false;
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f)
            return false;
    return true;
}

int64_t tsr_config_name_number(const char *text)
{
    int i = 0;
    if (!is_name(text))
        return -1;
    pthread_mutex_lock(&lock);
    while (i < n_names && strcmp(names[i], text) != 0)
        i++;
    if (i == n_names) {
        char *copy = i < TSR_CONFIG_NAMES_MOST ? tsr_strdup(text) : NULL;
        if (copy)
            names[n_names++] = copy;
        else
            i = -1;
    }
    pthread_mutex_unlock(&lock);
    return i < 0 ? -1 : TSR_CONFIG_NAMES_FIRST + i;
}

const char *tsr_config_name_text(int64_t number)
{
    const char *text = NULL;
    int64_t     i = number - TSR_CONFIG_NAMES_FIRST;
    pthread_mutex_lock(&lock);
    if (i >= 0 && i < n_names)
        text = names[i];
    pthread_mutex_unlock(&lock);
    return text;
}
