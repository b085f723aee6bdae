/* SPDX-License-Identifier: Apache-2.0
 *
 * The printer of programs: what its lines look like, and that it stops when asked.
 */
#include "loader/text/print_program.h"
#include "tests/support/named_ids.h"
#include "tests/support/small_program.h"
#include "tests/support/test.h"

struct text {
    char bytes[1 << 16];
    size_t used;
};
static int keep_line(void *ctx, const char *line, size_t bytes) {
    struct text *t = ctx;
    assert_true(bytes > 0 && line[bytes - 1] == '\n' && t->used + bytes < sizeof t->bytes);
    memcpy(t->bytes + t->used, line, bytes);
    t->used += bytes;
    t->bytes[t->used] = 0;
    return 0;
}

static void the_printer_shows_ops_with_names_loops_and_steps(void **state) {
    (void)state;
    static struct text t;
    struct pb *b = small_program();
    assert_int_equal(tw_program_print(&b->p, TW_PRINT_ALL, keep_line, &t), 0);
    const char *const lines[] = {
        "program decode rows=4 sites=2 mesh=2x1 chips=1 sram=1048576\n",
        "tensor 5 w role=param dtype=q8_0 shape=32x32 packing=panel16 bytes=1152 bind=6+2\n",
        "buffer $of of site=0 kind=fifo dtype=f32 pages=2x256 offset=$at:of ends=math>store "
        "siblings=$of\n",
        "trip 2 blocks input=pos@2 add=4 div=64 max=2\n",
        "    loop v1 < 2 {\n        wait nf@$nf 1\n",
        "        loop v3 < blocks@2(2) id=7 {\n            wait kf@$kf 1\n",
        "        matmul xq@$xq[0] s=40 wf@$wf[0] s=576 q8_0 k=32 panels=1 -> q@$q[0] s=64 reload=0 "
        "rows=rows@0(4)\n",
        "            read keys@8[v1*1, 4096+v2*8192] -> kf@$kf+1[0] n=1 b=4096 s=4096 s=4096\n",
        "        sem_wait valid@1 >= 2+v1*2+v0*4\n",
        "stream 1 site=0 engine=math\n    stage=1  ; layer.attn\n    wait xf@$xf 1\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char line[256];
        pb_with_ids(b, lines[i], line, sizeof line);
        if (!strstr(t.bytes, line)) {
            fail_msg("not printed: %s", line);
        }
    }
    pb_free(b);
}

static int refuse_line(void *ctx, const char *line, size_t bytes) {
    (void)line;
    (void)bytes;
    return ++*(int *)ctx == 3 ? TW_E_IO : 0;
}

static void the_printer_stops_when_its_callback_fails(void **state) {
    (void)state;
    struct pb *b = small_program();
    int lines = 0;
    assert_int_equal(tw_program_print(&b->p, TW_PRINT_ALL, refuse_line, &lines), TW_E_IO);
    assert_int_equal(lines, 3);
    pb_free(b);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_printer_shows_ops_with_names_loops_and_steps),
        cmocka_unit_test(the_printer_stops_when_its_callback_fails),
    };
    return cmocka_run_group_tests_name("print_program", tests, NULL, NULL);
}
