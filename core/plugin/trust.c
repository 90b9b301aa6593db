#include "plugin/trust.h"

#include "base/mem.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *tsr_plugin_executable(void)
{
    return realpath("/proc/self/exe", NULL);
}

/* Whether folder `dir` holds the file `exe` somewhere below it. */
static bool above(const char *dir, const char *exe)
{
    size_t n = strlen(dir);
    return exe && (n == 1 || (strncmp(exe, dir, n) == 0 && exe[n] == '/'));
}

static tsr_status check_one(const char *part, const char *whole, bool last, const char *exe,
                            const struct stat *exe_stat, struct tsr_err *err)
{
    struct stat st;
    if (lstat(part, &st) != 0)
        return tsr_fail_errno(err, errno, part, "stat");
    const char *what = S_ISDIR(st.st_mode) ? "folder" : "file";
    bool        sticky = !last && S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX) && st.st_uid == 0;
    if ((st.st_mode & S_IWOTH) && !sticky)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: the %s %s is writable by everybody (mode %04o), so anybody could put code "
            "into this program; run 'chmod o-w %s' or move the plugin",
            whole, what, last ? "itself" : part, (unsigned)(st.st_mode & 07777), part);
    if (st.st_uid == 0 || st.st_uid == geteuid() || (exe_stat && st.st_uid == exe_stat->st_uid))
        return TSR_OK;
    if (S_ISDIR(st.st_mode) && above(part, exe))
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: the %s %s belongs to user %u, it must belong to root or to you (user %u); "
                    "copy the plugin into a folder of yours",
                    whole, what, last ? "itself" : part, (unsigned)st.st_uid, (unsigned)geteuid());
}

tsr_status tsr_plugin_path_trusted(const char *real, struct tsr_err *err)
{
    char *part = tsr_strdup(real);
    if (!part)
        return tsr_fail_nomem(err, strlen(real), real);
    char       *exe = tsr_plugin_executable();
    struct stat exe_stat;
    bool        known = exe && stat(exe, &exe_stat) == 0;
    tsr_status  st = check_one("/", real, false, exe, known ? &exe_stat : NULL, err);
    for (size_t i = 1; st == TSR_OK && real[i - 1] != '\0'; i++) {
        if (real[i] != '/' && real[i] != '\0')
            continue;
        part[i] = '\0';
        st = check_one(part, real, real[i] == '\0', exe, known ? &exe_stat : NULL, err);
        part[i] = real[i];
    }
    free(exe);
    free(part);
    return st;
}
