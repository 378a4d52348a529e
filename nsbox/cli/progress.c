/* SPDX-License-Identifier: Apache-2.0 */
/* See progress.h. A process of its own tells it: we wait for the answer. */
#include "nsbox/cli/progress.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nsbox/util.h"

pid_t progress_start(bool quiet, const char *what)
{
	const struct timespec tick = { 0, 200000000 };
	uint64_t began = monotonic_us();
	pid_t pid;

	if (quiet || !isatty(STDERR_FILENO))
		return 0;
	fflush(NULL);
	pid = fork();
	if (pid)
		return pid > 0 ? pid : 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		nanosleep(&tick, NULL);
		fprintf(stderr, "\r\033[Knsbox: %s, %.1f s", what,
			(double)(monotonic_us() - began) / 1000000);
	}
}

void progress_stop(pid_t pid)
{
	if (!pid)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fprintf(stderr, "\r\033[K");
}
