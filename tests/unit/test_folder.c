/* One rule for the links of a model folder, whatever the file: within the folder and from a snapshot
 * to its own blobs they are followed, and everything else is refused by name.  The models are the
 * demo model's files. */
#include "../fixtures/error_is.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/safetensors/folder.h"
#include "checkpoint/texts.h"
#include "checkpoint/tokenizer.h"
#include "model/model.h"
#include "tokenizer/chat.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define DEMO     TSR_SOURCE_ROOT "/configs/demo"

/* Every file of a model folder that some verb reads. */
static const char *const files[] = {
    "config.json",          "generation_config.json",       "model.safetensors",
    "tokenizer.json",       "tokenizer_config.json",        "chat_template.jinja",
    "quantize_config.json", "model.safetensors.index.json", "packed.json",
};

static char root[64];

__attribute__((format(printf, 1, 2))) static void sh(const char *fmt, ...)
{
    char    line[1000], all[1100];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    (void)snprintf(all, sizeof all, "cd %s && { %s; }", root, line);
    if (system(all) != 0)
        fail_msg("%s", all);
}

static char *at(const char *name)
{
    static char path[4][200];
    static int  next;
    char       *p = path[next++ % 4];
    (void)snprintf(p, sizeof path[0], "%s/%s", root, name);
    return p;
}

/* All that reads a model folder; the first sentence of what fails. */
static tsr_status read_all(const char *folder, struct tsr_errbuf *e)
{
    struct tsr_model                *m = NULL;
    struct tsr_tokenizer            *t = NULL;
    struct tsr_chat                 *c = NULL;
    const struct tsr_checkpoint_chat plain = { 0 };
    tsr_status                       st = tsr_model_load(&m, folder, false, &e->err);
    if (st == TSR_OK)
        st = tsr_checkpoint_tokenizer_load(&t, folder, &e->err);
    if (st == TSR_OK) {
        struct tsr_errbuf ce = TSR_ERRBUF(ce);
        const tsr_status  chat = tsr_checkpoint_chat_load(&c, folder, &plain, t, &ce.err);
        if (chat != TSR_OK && ce.err.object_bytes > 0) /* not: the model has none */
            st = tsr_err_copy(&e->err, chat, &ce.err);
    }
    tsr_tokenizer_chat_destroy(c);
    tsr_tokenizer_destroy(t);
    tsr_model_destroy(m);
    return st;
}

static void good(const char *folder)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (read_all(at(folder), &e) != TSR_OK)
        fail_msg("%s: %s", folder, e.text);
}

static void bad(const char *folder, const char *about, const char *facts)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(read_all(at(folder), &e), TSR_E_INPUT);
    assert_true(error_is(&e.err, about, facts));
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/tessera-folder-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    sh("mkdir m elsewhere && cp " DEMO "/*.json " DEMO "/model.safetensors m && "
       "cp m/* elsewhere && printf x >elsewhere/chat_template.jinja && "
       "printf '{}' >elsewhere/quantize_config.json && "
       "cp elsewhere/quantize_config.json elsewhere/model.safetensors.index.json && "
       "cp elsewhere/quantize_config.json elsewhere/packed.json");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char line[100];
    (void)snprintf(line, sizeof line, "rm -rf %s", root);
    return system(line);
}

/* Each file as a link out of the folder, relative, absolute and through a link that stays inside. */
static void links_out(void **state)
{
    (void)state;
    good("m");
    for (size_t i = 0; i < COUNT(files); i++) {
        const char *f = files[i];
        sh("if test -e m/%s; then mv m/%s kept; fi", f, f);
        if (strcmp(f, "model.safetensors.index.json") ==
            0) /* it is read where the other is not there */
            sh("mv m/model.safetensors single");
        sh("ln -s ../elsewhere/%s m/%s", f, f);
        bad("m", f, "elsewhere");
        sh("ln -sfn %s/elsewhere/%s m/%s", root, f, f);
        bad("m", f, "elsewhere");
        sh("ln -s ../elsewhere/%s m/inner && ln -sfn inner m/%s", f, f);
        bad("m", f, "elsewhere");
        sh("rm m/inner m/%s; if test -e kept; then mv kept m/%s; fi", f, f);
        sh("if test -e single; then mv single m/model.safetensors; fi");
    }
    good("m");
}

/* Each text that goes along with a copy of a model, and a shard that an index names. */
static void others_out(void **state)
{
    (void)state;
    const char *name;
    for (uint64_t i = 0; (name = tsr_model_text_name(i)); i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        char             *text = NULL;
        uint64_t          len;
        sh("mkdir d && printf x >elsewhere/text && ln -s ../elsewhere/text d/%s", name);
        assert_int_equal(tsr_checkpoint_text_read(at("d"), name, 100, &text, &len, NULL, &e.err),
                         TSR_E_INPUT);
        assert_null(text);
        assert_true(error_is(&e.err, name, "elsewhere"));
        sh("rm -r d elsewhere/text");
    }
    sh("mv m/model.safetensors single && ln -s ../single m/part.safetensors && "
       "printf '{\"weight_map\": {\"x\": \"part.safetensors\"}}' >m/model.safetensors.index.json");
    bad("m", "part.safetensors", "single");
    sh("rm m/part.safetensors m/model.safetensors.index.json && mv single m/model.safetensors");
    good("m");
}

/* What is allowed: links that end in the folder, however they get there, and a linked folder. */
static void links_inside(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        const char *f = files[i];
        sh("mkdir m/sub && mv m/%s m/sub/x && ln -s sub/x m/%s", f, f);
        good("m");
        sh("ln -sfn %s/m/sub/x m/%s", root, f);
        good("m");
        sh("ln -s x m/sub/y && ln -sfn ../m/sub/y m/%s", f);
        good("m");
        sh("rm m/%s && mv m/sub/x m/%s && rm -r m/sub", f, f);
    }
    sh("ln -s m link && ln -s link link2");
    good("link2");
    sh("rm link link2");
}

/* What leads to no file. */
static void links_nowhere(void **state)
{
    (void)state;
    char proc[64];
    sh("mv m/tokenizer.json kept");
    sh("ln -s nowhere m/tokenizer.json");
    bad("m", "tokenizer.json", NULL);
    sh("ln -sfn tokenizer.json m/tokenizer.json");
    bad("m", "tokenizer.json", "back");
    sh("mkdir m/sub && ln -sfn sub m/tokenizer.json");
    bad("m", "tokenizer.json", "folder");
    sh("rmdir m/sub && mkfifo m/pipe && ln -sfn pipe m/tokenizer.json");
    bad("m", "tokenizer.json", "FIFO");
    sh("rm m/pipe && ln -sfn /dev/zero m/tokenizer.json");
    bad("m", "tokenizer.json", "/dev/zero");
    sh("ln -sfn /proc/self/environ m/tokenizer.json");
    bad("m", "tokenizer.json", "/proc/");
    /* through an open descriptor: where that leads is what counts */
    int fd = open(at("kept"), O_RDONLY);
    assert_true(fd >= 0);
    (void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    sh("ln -sfn %s m/tokenizer.json", proc);
    bad("m", "tokenizer.json", "kept");
    assert_int_equal(close(fd), 0);
    sh("rm m/tokenizer.json && mv kept m/tokenizer.json");
    good("m");
}

/* A folder beside, whose name begins with this one's. */
static void neighbours(void **state)
{
    (void)state;
    sh("cp -r elsewhere m2 && mv m/tokenizer.json kept && ln -s ../m2/tokenizer.json "
       "m/tokenizer.json");
    bad("m", "tokenizer.json", "m2");
    sh("rm -r m2 m/tokenizer.json && mv kept m/tokenizer.json");
}

/* The hub's cache: snapshots link to the blobs of the same repository, and to nothing else. */
static void hub_cache(void **state)
{
    (void)state;
    sh("mkdir -p hub/models--o--n/blobs hub/models--o--n/snapshots/r1 hub/models--o--n/other/r1 "
       "hub/models--o--x/blobs hub/plain/blobs hub/plain/snapshots/r1 && "
       "for f in m/*; do b=b-$(basename $f); cp $f hub/models--o--n/blobs/$b; "
       "cp $f hub/models--o--x/blobs/$b; cp $f hub/plain/blobs/$b; "
       "for d in models--o--n/snapshots models--o--n/other plain/snapshots; do "
       "ln -s ../../blobs/$b hub/$d/r1/$(basename $f); done; done");
    good("hub/models--o--n/snapshots/r1");
    /* behind links: the cache, the repository, the snapshot */
    sh("ln -s hub cache && ln -s hub/models--o--n repo && ln -s hub/models--o--n/snapshots/r1 "
       "snap");
    good("cache/models--o--n/snapshots/r1");
    good("repo/snapshots/r1");
    good("snap");
    good("snap/");
    good("snap/../r1/.");
    bad("hub/models--o--n/other/r1", "config.json", "blobs/b-config.json");
    bad("hub/plain/snapshots/r1", "config.json", "blobs/b-config.json");
    /* another repository's blobs, a blob that leads on, a file that only stands beside the blobs */
    static const char tok[] = "hub/models--o--n/snapshots/r1/tokenizer.json";
    sh("ln -sfn ../../../models--o--x/blobs/b-tokenizer.json %s", tok);
    bad("snap", "tokenizer.json", "models--o--x");
    sh("ln -s ../../../elsewhere/tokenizer.json hub/models--o--n/blobs/on && ln -sfn "
       "../../blobs/on %s",
       tok);
    bad("snap", "tokenizer.json", "elsewhere/tokenizer.json");
    sh("cp m/tokenizer.json hub/models--o--n/t && ln -sfn ../../t %s", tok);
    bad("snap", "tokenizer.json", "models--o--n/t");
    sh("mkdir hub/models--o--n/blobs/sub && cp m/tokenizer.json hub/models--o--n/blobs/sub/t && "
       "ln -sfn ../../blobs/sub/t %s",
       tok);
    bad("snap", "tokenizer.json", "blobs/sub/t");
    sh("rm -r hub cache repo snap");
}

static void names(void **state)
{
    (void)state;
    static const char *const outside[] = { "../c", "/etc/passwd", "..", ".", "", "sub/x" };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_file          f;
    for (size_t i = 0; i < COUNT(outside); i++) {
        assert_int_equal(tsr_checkpoint_folder_open(&f, at("m"), outside[i], &e.err), TSR_E_INPUT);
        assert_int_equal(f.fd, -1);
    }
    sh("mkdir d && cd d && ln -s ../m/config.json c");
    assert_int_equal(chdir(at("d")), 0); /* "" and "." are the current folder */
    assert_int_equal(tsr_checkpoint_folder_open(&f, ".", "c", &e.err), TSR_E_INPUT);
    assert_int_equal(chdir(at("m")), 0);
    assert_int_equal(tsr_checkpoint_folder_open(&f, ".", "config.json", &e.err), TSR_OK);
    tsr_file_close(&f);
    assert_int_equal(chdir("/"), 0);
    sh("rm -r d");
}

/* A loaded model and its texts are of one moment: what is replaced, taken away or added later is refused. */
static void texts_of_a_moment(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        { "generation_config.json",
          "cp d/generation_config.json d/g && mv d/g d/generation_config.json" },
        { "generation_config.json", "printf ' ' >>d/generation_config.json" },
        { "tokenizer.json", "rm d/tokenizer.json" },
        { "config.json", "mv d/config.json d/c" },
        { "chat_template.jinja", "printf x >d/chat_template.jinja" },
    };
    for (size_t i = 0; i < COUNT(changes); i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_model *m = NULL;
        char             *text;
        uint64_t          len;
        sh("rm -rf d && cp -r m d && rm -f d/chat_template.jinja");
        assert_int_equal(tsr_model_load(&m, at("d"), false, &e.err), TSR_OK);
        assert_int_equal(tsr_model_text(m, changes[i][0], &text, &len, &e.err), TSR_OK);
        free(text);
        sh("%s", changes[i][1]);
        assert_int_equal(tsr_model_text(m, changes[i][0], &text, &len, &e.err), TSR_E_INPUT);
        assert_null(text);
        assert_true(error_is(&e.err, "d", changes[i][0]));
        tsr_model_destroy(m);
    }
    sh("rm -r d");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_out),    cmocka_unit_test(others_out),
        cmocka_unit_test(links_inside), cmocka_unit_test(links_nowhere),
        cmocka_unit_test(neighbours),   cmocka_unit_test(hub_cache),
        cmocka_unit_test(names),        cmocka_unit_test(texts_of_a_moment),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
