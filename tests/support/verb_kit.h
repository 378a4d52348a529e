/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a sandbox about its files, and reading the answer. */
#ifndef TESTS_VERB_KIT_H
#define TESTS_VERB_KIT_H

#include <nsbox/files.h>
#include <nsbox/sandbox.h>

#define VERB_FRAMES_MAX 64

struct verb_frame {
	int kind;
	uint32_t mode;
	uint64_t size;
	char path[300];
	char data[600]; /* the beginning, NUL-terminated */
	struct nsbox_file_info info;
	struct nsbox_file_match match;
};

struct verb_answer {
	unsigned n;	/* frames, of which the first are kept */
	uint64_t bytes; /* of all content */
	struct verb_frame frame[VERB_FRAMES_MAX];
	struct nsbox_error error;  /* of the event */
	struct nsbox_error stream; /* of the stream, code 0 where it is whole or there is none */
};

/* Ask, wait for the event (other kinds are passed over), read the answer. Fails the test where the
 * sandbox goes, or answers nothing within `seconds`. in -1: none. */
void verb_ask(struct nsbox_sandbox *sb, const struct nsbox_file_request *req, int in,
	      struct verb_answer *ret);
/* The same with nothing but a verb, flags and a path; the event's errno, 0 where it succeeded. */
int verb_do(struct nsbox_sandbox *sb, uint32_t verb, uint32_t flags, const char *path,
	    struct verb_answer *ret);
int verb_put_text(struct nsbox_sandbox *sb, uint32_t flags, const char *path, const char *text);
/* The frame of that path, or NULL. */
const struct verb_frame *verb_find(const struct verb_answer *a, const char *path);

#endif
