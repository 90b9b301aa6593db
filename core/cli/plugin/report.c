#include "cli/plugin/report.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 24576u /* of the held-out text: a second or two */
#define MAX_TEXT   (UINT64_C(16) << 20)
#define MAX_SETS   256u

extern char **environ;

struct work {
    const struct tsr_cli        *c;
    const char                  *path, *id, *name;
    char                        *demo;   /* folder of the model and its texts */
    char                        *folder; /* for the job */
    struct tsr_cli_model_report *r;
};

/* ---- the job ---------------------------------------------------------------------- */

/* The first lines of the text that the model has not seen. */
static tsr_status put_text(const struct work *k, struct tsr_err *err)
{
    char    *path = tsr_path_join(k->demo, "held-out.txt"), *data = NULL;
    uint64_t n = 0;
    if (!path)
        return tsr_fail_nomem(err, strlen(k->demo), "a path");
    tsr_status st = tsr_file_slurp(path, MAX_TEXT, &data, &n, err);
    if (st == TSR_OK) {
        n = n < TEXT_BYTES ? n : TEXT_BYTES;
        while (n > 0 && data[n - 1] != '\n')
            n--;
        st = tsr_file_store_in(k->folder, "text.txt", data, n, err);
    }
    free(data);
    free(path);
    return st;
}

static tsr_status put_job(const struct work *k, struct tsr_err *err)
{
    char  use[256];
    char *calibration = tsr_path_join(k->demo, "calibration.txt");
    (void)snprintf(use, sizeof use, "%s/%s", k->id, k->name);
    json_t *j = json_pack(
        "{s:i, s:s, s:i, s:[s], s:[{s:{s:s, s:i, s:i}}, {s:{s:{s:{s:{s:s}}}, s:{s:{s:s, s:s}, s:b, "
        "s:{s:i, s:i, s:i}}}}]}",
        "version", 1, "model", k->demo, "seed", 7, "plugins", k->path, "pipeline", "calibrate",
        "text", calibration ? calibration : "", "samples", 16, "seqlen", 256, "compare", "arms",
        "plugin", "quantize", "use", use, "measure", "perplexity", "text", "text.txt", "protocol",
        "llamacpp-512", "kl", 1, "speed", "prompt", 128, "generate", 32, "repeats", 3);
    char      *text = NULL;
    uint64_t   n = 0;
    tsr_status st =
        calibration ? tsr_json_text(j, 0, &text, &n, err) : tsr_fail_nomem(err, 64, "a job");
    if (st == TSR_OK)
        st = tsr_file_store_in(k->folder, "job.yaml", text, n, err);
    free(text);
    free(calibration);
    json_decref(j);
    return st;
}

/* ---- the process -------------------------------------------------------------------- */

static tsr_status spawn(const struct work *k, char **argv, int *status, struct tsr_err *err)
{
    posix_spawn_file_actions_t f;
    pid_t                      pid;
    char                      *said = tsr_path_join(k->folder, "said.txt");
    if (!said)
        return tsr_fail_nomem(err, strlen(k->folder), "a path");
    (void)posix_spawn_file_actions_init(&f);
    (void)posix_spawn_file_actions_addopen(&f, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&f, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addopen(&f, STDERR_FILENO, said, O_WRONLY | O_CREAT, 0600);
    int e = posix_spawn(&pid, "/proc/self/exe", &f, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&f);
    free(said);
    if (e != 0)
        return tsr_fail_errno(err, e, "/proc/self/exe", "start");
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) {
    }
    if (tsr_plugin_cancelled())
        return tsr_fail(err, TSR_E_CANCELLED, "%s", k->path);
    return TSR_OK;
}

static tsr_status run_job(const struct work *k, int *status, struct tsr_err *err)
{
    uint64_t    n = k->c->n_sets < MAX_SETS ? k->c->n_sets : MAX_SETS;
    char      **argv = tsr_new(8 + 2 * n, sizeof *argv), **sets = tsr_new(n + 1, sizeof *sets);
    char       *job = tsr_path_join(k->folder, "job.yaml"), *out = tsr_path_join(k->folder, "out");
    static char self[] = "tessera", run[] = "run", quiet[] = "-q", out_flag[] = "--out",
                set_flag[] = "--set";
    tsr_status st = argv && sets && job && out ? TSR_OK : tsr_fail_nomem(err, n, "arguments");
    if (st == TSR_OK) {
        char *first[] = { self, run, job, quiet, out_flag, out };
        memcpy(argv, first, sizeof first);
    }
    for (uint64_t i = 0; st == TSR_OK && i < n; i++) {
        static const char where[] = "compare.arms.plugin.quantize.";
        size_t            bytes = sizeof where + strlen(k->c->sets[i]);
        sets[i] = tsr_new(bytes, 1);
        if (!sets[i])
            st = tsr_fail_nomem(err, bytes, "arguments");
        else
            (void)snprintf(sets[i], bytes, "%s%s", where, k->c->sets[i]);
        argv[6 + 2 * i] = set_flag;
        argv[7 + 2 * i] = sets[i];
    }
    if (st == TSR_OK)
        st = spawn(k, argv, status, err);
    for (uint64_t i = 0; sets && i < n; i++)
        free(sets[i]);
    free(sets);
    free(argv);
    free(job);
    free(out);
    return st;
}

/* ---- its results ---------------------------------------------------------------------- */

/* The last line of the process, or how it ended. */
static void read_failure(const struct work *k, int status)
{
    char    *path = tsr_path_join(k->folder, "said.txt"), *data = NULL;
    uint64_t n = 0;
    if (path && tsr_file_slurp(path, MAX_TEXT, &data, &n, NULL) == TSR_OK)
        while (n > 0 && data[n - 1] == '\n')
            data[--n] = '\0';
    const char *last = data && n ? strrchr(data, '\n') : NULL;
    last = last ? last + 1 : data;
    if (last && *last)
        (void)snprintf(k->r->failed, sizeof k->r->failed, "%s", last);
    else if (WIFSIGNALED(status))
        (void)snprintf(k->r->failed, sizeof k->r->failed, "it ended with signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        (void)snprintf(k->r->failed, sizeof k->r->failed, "it ended with exit status %d",
                       WEXITSTATUS(status));
    free(data);
    free(path);
}

static double real(const json_t *o, const char *first, const char *second)
{
    const json_t *v = json_object_get(o, first);
    return json_number_value(second ? json_object_get(v, second) : v);
}

static void read_results(const struct work *k)
{
    char             *path = tsr_path_join(k->folder, "out/results.json");
    json_t           *j = NULL;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = path ? tsr_json_load(&j, path, MAX_TEXT, 32, &e.err) : TSR_E_NOMEM;
    const json_t     *arms =
        json_object_get(json_object_get(json_object_get(j, "results"), "compare"), "arms");
    const json_t *was = json_array_get(arms, 0), *is = json_array_get(arms, 1);
    const char   *failed = json_string_value(json_object_get(is, "failed"));
    if (st != TSR_OK || !was || !is || failed) {
        (void)snprintf(k->r->failed, sizeof k->r->failed, "%s",
                       failed    ? failed
                       : *e.text ? e.text
                                 : "its results lack the comparison");
    } else {
        *k->r = (struct tsr_cli_model_report){
            .bits = real(is, "bits_per_weight", NULL),
            .perplexity = real(is, "perplexity", NULL),
            .original = real(was, "perplexity", NULL),
            .kl = real(is, "kl", "mean"),
            .top1 = real(is, "top1", NULL),
            .prefill = real(is, "speed", "prefill_tokens_per_s"),
            .decode = real(is, "speed", "decode_tokens_per_s"),
            .prefill_was = real(was, "speed", "prefill_tokens_per_s"),
            .decode_was = real(was, "speed", "decode_tokens_per_s"),
        };
    }
    json_decref(j);
    free(path);
}

static tsr_status measure(struct work *k, struct tsr_err *err)
{
    int status = 0;
    TSR_TRY(put_text(k, err));
    TSR_TRY(put_job(k, err));
    TSR_TRY(run_job(k, &status, err));
    if (status != 0)
        read_failure(k, status);
    else
        read_results(k);
    return TSR_OK;
}

tsr_status tsr_plugin_report(const struct tsr_cli *c, const char *path, const char *id,
                             const char *name, struct tsr_cli_model_report *r, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct work       k = { .c = c, .path = path, .id = id, .name = name, .r = r };
    *r = (struct tsr_cli_model_report){ 0 };
    if (tsr_model_resolve("@demo", &k.demo, &e.err) != TSR_OK) {
        (void)snprintf(r->failed, sizeof r->failed, "%s", e.text);
        return TSR_OK;
    }
    tsr_status st = tsr_temp_folder(&k.folder, "check", err);
    if (st == TSR_OK)
        st = measure(&k, err);
    tsr_temp_folder_remove(k.folder);
    free(k.demo);
    return st;
}
