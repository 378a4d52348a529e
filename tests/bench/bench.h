/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the bench share. */
#ifndef TESTS_BENCH_H
#define TESTS_BENCH_H

#include <nsbox/host.h>
#include <stdlib.h>

#define BENCH_ROUNDS 41

struct json_object;

extern struct nsbox_host bench_host;
extern const char *bench_dir; /* of the programs */

double bench_now_us(void);
double bench_median(double *v, size_t n);
void bench_put(struct json_object *o, const char *key, double v);
_Noreturn void bench_die(const char *what, const struct nsbox_error *err);
/* A program from its start to its end, which has to be a good one. */
double bench_spawn_us(const char *const *argv);

/* bench_image.c */
void bench_image(struct json_object *o, int plan_fd);

#endif
