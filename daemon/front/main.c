/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsboxd: the same program is the supervisor and, started by it with --front as its first argument,
 * the front.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/front/supervisor.h"
#include "nsbox/util.h"

/* Where the workers are: as told, else beside this program (a build tree), else as installed. */
static void find_libexec(struct front_options *o)
{
	char self[OPTION_PATH_MAX], spawn[OPTION_PATH_MAX + 16];
	ssize_t n;
	char *slash;

	if (*o->libexec)
		return;
	strcpy(o->libexec, NSBOX_LIBEXECDIR);
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return;
	self[n] = 0;
	slash = strrchr(self, '/');
	*slash = 0;
	snprintf(spawn, sizeof(spawn), "%s/nsbox-spawn", self);
	if (access(spawn, X_OK) == 0)
		strcpy(o->libexec, self);
}

static int complain(const struct nsbox_error *err)
{
	fprintf(stderr, "<3>nsboxd: %s\n", err->msg);
	return 1;
}

int main(int argc, char **argv)
{
	struct front_options *opt = calloc(1, sizeof(*opt));
	struct front_arguments args = { 0 };
	struct nsbox_error err = { 0 };
	int r;

	if (!opt)
		return 1;
	options_default(opt);
	r = options_parse(argc, argv, opt, &args);
	if (r == 0 && args.front) {
		free(opt);
		return front_main(FRONT_LISTEN_FD, FRONT_SPAWN_FD, FRONT_DATA_FD, FRONT_ORDER_FD,
				  FRONT_EGRESS_FD);
	}
	if (r < 0)
		fprintf(stderr, "Try `nsboxd --help'.\n");
	if (r == 0 && options_load(&args, opt, &err) < 0)
		r = complain(&err);
	else if (r == 0 && args.check)
		r = puts("nsboxd: configuration and options are right") < 0;
	else if (r == 0) {
		find_libexec(opt);
		return supervise(opt, &args, &err) < 0 ? complain(&err) : 0;
	} else {
		r = r < 0 ? 2 : 0;
	}
	free(opt);
	return r;
}
