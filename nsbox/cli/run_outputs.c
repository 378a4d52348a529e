/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out of a run: the files that the globs of the manifest and of --collect name. */
#include "nsbox/cli/run.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <nsbox/files.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/common/digest.h"
#include "daemon/common/media_type.h"
#include "daemon/common/text.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "policy/skill/text.h"

#define OUTPUT_MAX_BYTES (64u << 20)
#define OUTPUT_MAX_FILES 1000

/* Names are the payload's: shown without acting on a terminal, and exact in the report. */
static void say_left_out(const char *path, const char *note)
{
	auto_free char *shown = text_shown(path, strlen(path));

	fprintf(stderr, "nsbox: output '%s' was left out: %s\n", shown ? shown : "?", note);
}

struct taken {
	struct json_object *list;
	int dir; /* where they are written */
};

/* What was written, as sha256sum(1) says it. */
static void add_digest(struct json_object *o, int dir, const char *path)
{
	auto_close int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char hex[DIGEST_HEX];
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	p = st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
	if (p == MAP_FAILED)
		return;
	if (digest_hex(p ? p : "", (size_t)st.st_size, hex, NULL) == 0)
		json_object_object_add(o, "sha256", json_object_new_string(hex));
	if (p)
		munmap(p, (size_t)st.st_size);
}

static void note_output(void *ctx, int kind, const char *path, uint64_t size, const char *note)
{
	const struct taken *t = ctx;
	struct json_object *o;

	if (kind == NSBOX_FRAME_NOTE)
		say_left_out(path, note);
	if (kind != NSBOX_FRAME_FILE && kind != NSBOX_FRAME_NOTE)
		return;
	o = json_object_new_object();
	json_object_object_add(o, "path", json_text_new(path, strlen(path)));
	if (!utf8_valid(path, strlen(path))) {
		auto_free char *exact = base64_encode(path, strlen(path));

		json_object_object_add(o, "path_base64",
				       json_object_new_string(exact ? exact : ""));
	}
	json_object_object_add(o, "size", json_object_new_int64((int64_t)size));
	if (kind == NSBOX_FRAME_NOTE) {
		json_object_object_add(o, "leftOut", json_text_new(note, strlen(note)));
	} else {
		add_digest(o, t->dir, path);
		json_object_object_add(o, "mediaType", json_object_new_string(media_type_of(path)));
	}
	json_object_array_add(t->list, o);
}

static unsigned output_rules(const struct run *c, struct nsbox_output *rules)
{
	const struct blob *b = plan_blob(c->plan);
	size_t n;
	const struct output_rule *r = blob_get(b, SEC_OUTPUTS, sizeof(*r), &n);
	unsigned count = 0;

	for (size_t i = 0; i < n && count < 16; i++)
		rules[count++] = (struct nsbox_output){ blob_get_str(b, r[i].glob), r[i].max_bytes,
							r[i].max_files };
	for (unsigned i = 0; i < c->opt->collects && count < 16; i++)
		rules[count++] = (struct nsbox_output){ c->opt->collect[i], OUTPUT_MAX_BYTES,
							OUTPUT_MAX_FILES };
	return count;
}

static int wait_collected(struct run *c, struct nsbox_error *err)
{
	struct nsbox_event ev;

	for (;;) {
		int r = nsbox_sandbox_next(c->sb, 60000, &ev, err);

		if (r < 0)
			return r;
		if (ev.kind == NSBOX_EVENT_COLLECTED && ev.error.code) {
			*err = ev.error;
			return -EIO;
		}
		if (ev.kind == NSBOX_EVENT_COLLECTED)
			return 0;
		if (ev.kind == NSBOX_EVENT_NONE || ev.kind == NSBOX_EVENT_GONE)
			return nsbox_fail_at(err, NSBOX_STAGE_COLLECT, NSBOX_E_PROTOCOL, 0,
					     "the sandbox did not hand out its files");
	}
}

int run_collect_stream(struct run *c, int *ret_fd, struct nsbox_error *err)
{
	struct nsbox_output rules[16];
	unsigned n = output_rules(c, rules);
	auto_close int stream = -1;
	int r;

	*ret_fd = -1;
	if (!n || c->result.cause == NSBOX_CAUSE_SANDBOX ||
	    c->result.cause == NSBOX_CAUSE_INTERRUPTED)
		return 0;
	stream = memfd_create("nsbox-outputs", MFD_CLOEXEC);
	if (stream < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a memfd for outputs");
	r = nsbox_sandbox_collect(c->sb, run_work_dir(c), rules, n, stream, err);
	if (r == 0)
		r = wait_collected(c, err);
	if (r == 0 && lseek(stream, 0, SEEK_SET) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "rewind the outputs");
	if (r == 0)
		*ret_fd = take_fd(&stream);
	return r;
}

int run_collect(struct run *c, struct nsbox_error *err)
{
	const struct nsbox_files_limits lim = NSBOX_FILES_LIMITS_DEFAULT;
	auto_close int stream = -1, dir = -1;
	struct taken taken;
	int r;

	if (!c->opt->output)
		return 0;
	r = run_collect_stream(c, &stream, err);
	if (r < 0 || stream < 0)
		return r;
	if (mkdir(c->opt->output, 0755) < 0 && errno != EEXIST)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make '%s'", c->opt->output);
	dir = open(c->opt->output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", c->opt->output);
	c->outputs = json_object_new_array();
	taken = (struct taken){ c->outputs, dir };
	return nsbox_files_receive_dir(stream, dir, &lim, note_output, &taken, err);
}
