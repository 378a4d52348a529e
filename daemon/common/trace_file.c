/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/common/text.h"
#include "nsbox/util.h"

int trace_file_open(struct trace_file *ret, struct nsbox_error *err)
{
	auto_close int fd = memfd_create("nsbox-trace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	/* Whoever maps it may rely on its size. */
	if (fd < 0 || ftruncate(fd, sizeof(struct nsbox_trace)) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make the file of a trace");
	p = mmap(NULL, sizeof(struct nsbox_trace), PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "map the file of a trace");
	ret->fd = take_fd(&fd);
	ret->table = p;
	return 0;
}

void trace_file_close(struct trace_file *t)
{
	if (t->fd > 0)
		close(t->fd);
	if (t->table)
		munmap((void *)t->table, sizeof(*t->table));
	*t = (struct trace_file){ .fd = -1 };
}

static void put(struct json_object *o, const char *key, const char *s)
{
	/* Names are the payload's. */
	json_object_object_add(o, key, s ? json_text_new(s, strlen(s)) : NULL);
}

static const char *why_of(uint32_t errnum)
{
	switch (errnum) {
	case ENOENT:
	case ENOTDIR: return "it is not there";
	case EROFS: return "it is read-only";
	default: return "the run has no right to it";
	}
}

static struct json_object *row_json(const struct nsbox_trace_row *shared)
{
	struct nsbox_trace_row row = *shared; /* what is left running may still write */
	bool writes = (row.flags & O_ACCMODE) != O_RDONLY || (row.flags & O_CREAT);
	struct json_object *o = json_object_new_object();
	char question[NSBOX_TRACE_PATH + 16];

	row.path[sizeof(row.path) - 1] = '\0';
	snprintf(question, sizeof(question), "%s %s", writes ? "write" : "open", row.path);
	put(o, "layer", "files");
	put(o, "what", writes ? "write" : "open");
	put(o, "name", row.path);
	put(o, "error", strerrorname_np((int)row.errnum) ? strerrorname_np((int)row.errnum) : "?");
	put(o, "why", why_of(row.errnum));
	put(o, "pointer", NULL);
	put(o, "ask", question);
	json_object_object_add(o, "times", json_object_new_uint64(row.times));
	return o;
}

/* Beyond the rows there is room for, or nobody could try them. */
static struct json_object *rest_json(uint64_t times)
{
	struct json_object *o = json_object_new_object();

	put(o, "layer", "files");
	put(o, "what", "open");
	put(o, "name", NULL);
	put(o, "why", "others, not told apart");
	put(o, "pointer", NULL);
	json_object_object_add(o, "times", json_object_new_uint64(times));
	return o;
}

void trace_file_tell(const struct trace_file *t, struct json_object *list)
{
	uint32_t rows = t && t->table ? MIN(t->table->rows, NSBOX_TRACE_ROWS) : 0;

	for (uint32_t i = 0; i < rows; i++)
		json_object_array_add(list, row_json(&t->table->row[i]));
	if (t && t->table && t->table->untold)
		json_object_array_add(list, rest_json(t->table->untold));
}
