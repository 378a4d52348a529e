/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the bench share. */
#ifndef TESTS_BENCH_H
#define TESTS_BENCH_H

#include <nsbox/host.h>
#include <stdlib.h>

#define BENCH_ROUNDS 41

struct json_object;
struct nsbox_plan;
struct nsbox_root;
struct nsbox_sandbox;

extern struct nsbox_host bench_host;
extern const char *bench_dir; /* of the programs */

double bench_now_us(void);
double bench_median(double *v, size_t n);
void bench_put(struct json_object *o, const char *key, double v);
_Noreturn void bench_die(const char *what, const struct nsbox_error *err);
/* A program from its start to its end, which has to be a good one. */
double bench_spawn_us(const char *const *argv);

/* One run of /bin/true through the library, which has to be a good one. */
double bench_run_us(const struct nsbox_plan *plan, const struct nsbox_root *root,
		    double *ret_witness);

/* bench_modes.c */
int bench_calls(const char *file);
int bench_serve(int plan_fd);

/* bench_sustain.c */
int bench_rate(int plan_fd, const char *name, double seconds, unsigned workers);

/* A sandbox that is ready, and how long that took; the caller frees it. */
struct nsbox_sandbox *bench_ready(const struct nsbox_plan *plan, const struct nsbox_root *root);

/* bench_image.c */
void bench_image(struct json_object *o, int plan_fd);

#endif
