/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator shows of the host besides what every program needs: the file host.paths in the
 * state directory, a directory per line, such as a virtual environment below /opt. Shown read-only
 * at the same place. Only below /opt: elsewhere a run has directories of its own, or finds the image's.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nsbox/util.h"
#include "overlay/internal.h"

#define FILE_NAME  "host.paths"
#define BYTES_MAX  65536
#define PATHS_MAX  64
#define OUR_RUNNER "/opt/nsbox"

static int bad(struct nsbox_error *err, const char *path, const char *why)
{
	return nsbox_fail(err, NSBOX_E_INVALID, 0, FILE_NAME " in the state directory: '%s' %s",
			  path, why);
}

static bool is_plain(const char *path)
{
	static const char *const odd[] = { "/../", "/./", "//" };
	size_t len = strlen(path);
	char text[PATH_MAX + 1];

	if (nsbox_format(text, sizeof(text), "%s/", path) >= (int)sizeof(text) ||
	    path[len - 1] == '/')
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
		if (strstr(text, odd[i]))
			return false;
	return true;
}

static int check_path(const char *path, struct nsbox_error *err)
{
	size_t n = strlen(OUR_RUNNER);
	struct stat st;

	if (strncmp(path, "/opt/", 5) != 0 || !is_plain(path))
		return bad(err, path, "is not a plain path below /opt");
	if (strncmp(path, OUR_RUNNER, n) == 0 && (path[n] == '/' || path[n] == '\0'))
		return bad(err, path, "is where nsbox has its own files inside");
	if (stat(path, &st) < 0)
		return nsbox_fail(err, NSBOX_E_INVALID, errno,
				  FILE_NAME " in the state directory: '%s'", path);
	return S_ISDIR(st.st_mode) ? 0 : bad(err, path, "is no directory");
}

/* NULL without an error: there is no such file. */
static char *read_file(const struct state_dir *state, struct nsbox_error *err)
{
	auto_close int fd =
		openat(state->fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
	struct stat st;
	char *text;
	ssize_t n;

	if (fd < 0) {
		if (errno != ENOENT)
			nsbox_fail(err, NSBOX_E_IO, errno, "open %s/%s", state->path, FILE_NAME);
		return NULL;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > BYTES_MAX ||
	    (st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022)) {
		nsbox_fail(err, NSBOX_E_INVALID, 0,
			   "%s/%s: is not a small file that only its owner can change", state->path,
			   FILE_NAME);
		return NULL;
	}
	text = calloc(1, (size_t)st.st_size + 1);
	n = text ? read(fd, text, (size_t)st.st_size) : -1;
	if (n < 0) {
		free(text);
		nsbox_fail(err, NSBOX_E_IO, errno, "read %s/%s", state->path, FILE_NAME);
		return NULL;
	}
	return text;
}

int host_paths_each(const struct state_dir *state, host_path_fn *fn, void *ctx,
		    struct nsbox_error *err)
{
	struct nsbox_error why = { 0 };
	auto_free char *text = read_file(state, &why);
	char *at = text, *line;
	int count = 0, r = 0;

	if (why.code && err)
		*err = why;
	if (why.code)
		return -EINVAL;
	while (r == 0 && at && (line = strsep(&at, "\n"))) {
		if (!*line || *line == '#')
			continue;
		if (++count > PATHS_MAX)
			return bad(err, line, "is one too many");
		r = check_path(line, err);
		if (r == 0)
			r = fn(ctx, line);
	}
	return r;
}
