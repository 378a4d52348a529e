/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-commit: an image with one more layer, from the layer stream on standard input.
 *
 *	nsbox-commit STATE-DIR BASE DIGEST NAME <STREAM
 *
 * Started by nsbox-spawn, whose privileges it has: the writer of layers needs them (owner.c). What comes
 * in is a program's word, and read by that writer alone. BASE has to be the image of this digest still.
 * Says "id ID" or "error TEXT" as a record on standard output.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "overlay/image/import.h"

int main(int argc, char **argv)
{
	struct nsbox_error err = { 0 };
	char id[DIGEST_TEXT];
	int r;

	if (argc != 5) {
		fputs("usage: nsbox-commit STATE-DIR BASE DIGEST NAME <STREAM\n", stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	r = image_commit(*argv[1] ? argv[1] : NULL, argv[2], argv[3], argv[4], STDIN_FILENO, id,
			 &err);
	record_put(stdout, r < 0 ? "error" : "id", r < 0 ? err.msg : id);
	return r < 0 || fflush(stdout) != 0;
}
