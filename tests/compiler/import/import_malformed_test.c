/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares every GGUF, safetensors, llama2.c and tokenizer file of ../shared/data/malformed with
 * the outcome that its cases.json demands. Each runs in a process of its own, so that a signal, a
 * long run or a large allocation is reported as that file's failure. "accept" means that the
 * container is read; a file without a whole model is still refused as a model.
 */
#include "compiler/import/gguf.h"
#include "compiler/import/model.h"
#include "compiler/import/safetensors.h"
#include "loader/base/file_map.h"
#include "tests/support/test.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_SECONDS 1.0
#define MAX_KIB (64 * 1024) /* resident, at the peak */

struct test_case {
    char file[128], class_[32], expect[32];
};

struct outcome {
    int rc;
    char message[480];
};

static char folder[64];
static char shared[3500];

static int run(const char *program, const char *const arguments[]) {
    pid_t pid = fork();
    if (pid == 0) {
        execvp(program, (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    int status = -1;
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static int unpack(void **state) {
    (void)state;
    char archive[4096];
    const char *root = getenv("TW_SHARED");
    snprintf(shared, sizeof shared, "%s/data", root ? root : "");
    snprintf(archive, sizeof archive, "%s/malformed/files.tar.xz", shared);
    if (!root || access(archive, R_OK) != 0) {
        shared[0] = 0;
        return 0;
    }
    snprintf(folder, sizeof folder, "/tmp/tw-malformed-XXXXXX");
    if (!mkdtemp(folder)) {
        return -1;
    }
    const char *const tar[] = {"tar", "-xf", archive, "-C", folder, NULL};
    return run("tar", tar);
}

static int clean_up(void **state) {
    (void)state;
    const char *const rm[] = {"rm", "-r", "--", folder, NULL};
    return folder[0] ? run("rm", rm) : 0;
}

/* ---- one case ---- */

static void parse_container(const char *path, struct outcome *o) {
    struct tw_import_memory memory = {0};
    struct tw_file_map file;
    struct tw_gguf gguf;
    tw_error err = {0};
    o->rc = tw_file_map_open(path, &file, &err);
    o->rc = o->rc ? o->rc : tw_gguf_parse(path, file.bytes, file.size, &memory, &gguf, &err);
    memcpy(o->message, err.message, sizeof o->message);
    tw_import_free(&memory);
    tw_file_map_close(&file);
}

static void parse_safetensors(const char *path, struct outcome *o) {
    struct tw_import_memory memory = {0};
    struct tw_file_map file;
    struct tw_safetensors s;
    tw_error err = {0};
    o->rc = tw_file_map_open(path, &file, &err);
    o->rc = o->rc ? o->rc : tw_st_parse_file(path, &file, &memory, &s, &err);
    memcpy(o->message, err.message, sizeof o->message);
    tw_import_free(&memory);
    tw_file_map_close(&file);
}

static void open_model(const char *path, const char *tokenizer, struct outcome *o) {
    struct tw_model model;
    tw_error err = {0};
    o->rc = tw_model_open(path, tokenizer, &model, &err);
    memcpy(o->message, err.message, sizeof o->message);
    tw_model_close(&model);
}

static void attempt(const struct test_case *c, struct outcome *o) {
    char path[256], model[4096];
    snprintf(path, sizeof path, "%s/files/%s", folder, c->file);
    memset(o, 0, sizeof *o);
    if (strcmp(c->class_, "tokenizer") == 0) {
        snprintf(model, sizeof model, "%s/models/stories260K.bin", shared);
        open_model(model, path, o);
    } else if (strcmp(c->class_, "safetensors") == 0) {
        parse_safetensors(path, o);
    } else if (strcmp(c->class_, "gguf") == 0 && strcmp(c->expect, "accept") == 0) {
        parse_container(path, o);
    } else {
        open_model(path, NULL, o);
    }
}

/* Runs the case in a child; true if it behaved. */
static bool run_case(const struct test_case *c) {
    int ends[2], status;
    struct outcome o = {0};
    struct rusage usage;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        attempt(c, &o);
        _exit(write(ends[1], &o, sizeof o) == (ssize_t)sizeof o ? 0 : 1);
    }
    close(ends[1]);
    bool answered = read(ends[0], &o, sizeof o) == (ssize_t)sizeof o;
    close(ends[0]);
    assert_int_equal(wait4(pid, &status, 0, &usage), pid);
    double seconds = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6 +
                     (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6;
    const char *name = tw_error_name(o.rc);
    print_message("%-36s %-16s %-11s %s\n", c->file, c->expect, name, o.message);
    bool good = answered && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    good = good && (TEST_ASAN || TEST_TSAN || (seconds < MAX_SECONDS && usage.ru_maxrss < MAX_KIB));
    good = good && (strcmp(c->expect, "reject") != 0 || o.rc != 0);
    good = good && (strcmp(c->expect, "accept") != 0 || o.rc == 0);
    good = good && (o.rc == 0 || (strstr(o.message, c->file) && !strchr(o.message, '\n')));
    good = good && tw_error_class_of(o.rc) != TW_CLASS_INTERNAL && o.rc != TW_E_NOMEM;
    if (!good) {
        print_error("%s misbehaved: status 0x%x, %.3f s, %ld KiB\n", c->file, (unsigned)status,
                    seconds, usage.ru_maxrss);
    }
    return good;
}

/* ---- all cases ---- */

static void field(const char *line, const char *name, char *out, const char *format) {
    char start[32];
    snprintf(start, sizeof start, "\"%s\": \"", name);
    if (strncmp(line, start, strlen(start)) == 0) {
        sscanf(line + strlen(start), format, out);
    }
}

/* Runs the cases of one class; `min` guards against misreading the list. */
static void run_class(const char *class_, unsigned min) {
    char path[4096], line[1024];
    struct test_case c = {0};
    unsigned count = 0, bad = 0;
    if (!shared[0]) {
        print_message("skipped: there is no shared test data (TW_SHARED)\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/malformed/cases.json", shared);
    FILE *list = fopen(path, "r");
    assert_non_null(list);
    while (fgets(line, sizeof line, list)) {
        field(line, "file", c.file, "%127[^\"]");
        field(line, "cls", c.class_, "%31[^\"]");
        field(line, "expect", c.expect, "%31[^\"]");
        if (line[0] == '}') {
            if (strcmp(c.class_, class_) == 0) {
                assert_true(c.file[0] && c.expect[0]);
                count++;
                bad += run_case(&c) ? 0 : 1;
            }
            c = (struct test_case){0};
        }
    }
    fclose(list);
    assert_true(count >= min);
    assert_int_equal(bad, 0);
}

static void gguf_files_are_accepted_or_refused_as_listed(void **state) {
    (void)state;
    run_class("gguf", 65);
}

static void real_gguf_files_with_one_fault_are_refused_as_listed(void **state) {
    (void)state;
    run_class("gguf-real", 19);
}

static void llama2c_checkpoints_are_refused_as_listed(void **state) {
    (void)state;
    run_class("llama2c", 24);
}

static void llama2c_tokenizers_are_refused_as_listed(void **state) {
    (void)state;
    run_class("tokenizer", 4);
}

static void safetensors_are_accepted_or_refused_as_listed(void **state) {
    (void)state;
    run_class("safetensors", 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_files_are_accepted_or_refused_as_listed),
        cmocka_unit_test(real_gguf_files_with_one_fault_are_refused_as_listed),
        cmocka_unit_test(safetensors_are_accepted_or_refused_as_listed),
        cmocka_unit_test(llama2c_checkpoints_are_refused_as_listed),
        cmocka_unit_test(llama2c_tokenizers_are_refused_as_listed),
    };
    return cmocka_run_group_tests(tests, unpack, clean_up);
}
