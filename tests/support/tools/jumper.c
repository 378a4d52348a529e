/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jumper N: N processes, each in a session of its own, that go on by forking and ending, as fast as
 * they can: none lives long enough to be looked at twice.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1;

	signal(SIGTERM, SIG_IGN);
	for (int i = 0; i < n; i++) {
		if (fork() != 0)
			continue;
		for (;;) {
			setsid();
			if (fork() > 0)
				_exit(0);
		}
	}
	for (;;)
		pause();
}
