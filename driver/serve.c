/* SPDX-License-Identifier: Apache-2.0
 *
 * Serving an emulated device: the public form of firmware/port/socket.h.
 */
#include "driver/transport/emu_options.h"
#include "firmware/port/faults.h"
#include "firmware/port/socket.h"
#include "tilewright/tilewright.h"

int tw_serve(const struct tw_serve_options *options, const volatile int *stop, tw_error *err) {
    char target[64], path[108];
    struct tw_socket *s;
    struct tw_socket_options o = {
        .path = options->path,
        .emu = {.n_threads = options->n_threads, .memory_bytes = options->memory_bytes},
        .faults = options->faults,
        .seed = options->seed,
    };
    if (!options->path || !*options->path) {
        return tw_fail(err, TW_E_USAGE, "serve: no path to listen on");
    }
    int code = tw_emu_options_fill(&o.emu, options->target ? options->target : "", options->isa, target, err);
    code = code ? code : tw_socket_path(options->path, path, err);
    code = code ? code : tw_socket_create(&o, &s, err);
    if (code) {
        return code;
    }
    if (options->ready) {
        options->ready(options->ctx, path);
    }
    tw_socket_run(s, stop);
    tw_socket_destroy(s);
    return 0;
}

const char *tw_fault_plan(uint32_t index, const char **text) {
    const char *ignored;
    return tw_faults_list(index, text ? text : &ignored);
}
