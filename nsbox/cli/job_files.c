/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/cli/job_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <nsbox/files.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/text.h"
#include "nsbox/cli/ask.h"
#include "nsbox/cli/cli.h"
#include "nsbox/util.h"

#define FILE_MAX  (48u << 20) /* what a request can hold, as base64 */
#define DEPTH_MAX 64

/* ------------------------------------------------------------------ into a request */

static int add_content(struct json_object *o, const char *src, struct nsbox_error *err)
{
	auto_free char *data = NULL, *text = NULL;
	size_t len = 0;
	int r = cli_read_file(src, FILE_MAX, &data, &len, err);

	if (r < 0)
		return r;
	text = base64_encode(data, len);
	json_object_object_add(o, "content_base64", json_object_new_string(text ? text : ""));
	return text ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", src);
}

static int add_link(struct json_object *o, const char *src, struct nsbox_error *err)
{
	char target[4096];
	ssize_t n = readlink(src, target, sizeof(target) - 1);

	if (n < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "read the link '%s'", src);
	target[n] = 0;
	json_object_object_add(o, "symlink", json_object_new_string(target));
	return 0;
}

static int add(struct json_object *list, const char *src, const char *dst, int depth,
	       struct nsbox_error *err);

static int add_dir(struct json_object *list, const char *src, const char *dst, int depth,
		   struct nsbox_error *err)
{
	DIR *d = opendir(src);
	struct dirent *e;
	int r = 0;

	if (!d)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the directory '%s'", src);
	while (r == 0 && (e = readdir(d))) {
		auto_free char *from = NULL, *to = NULL;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (asprintf(&from, "%s/%s", src, e->d_name) < 0 ||
		    asprintf(&to, "%s%s%s", dst, *dst ? "/" : "", e->d_name) < 0)
			r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", src);
		else
			r = add(list, from, to, depth + 1, err);
	}
	closedir(d);
	return r;
}

static int add(struct json_object *list, const char *src, const char *dst, int depth,
	       struct nsbox_error *err)
{
	struct json_object *o;
	struct stat st;
	char mode[8];
	int r;

	if ((depth ? lstat(src, &st) : stat(src, &st)) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at '%s'", src);
	if (depth > DEPTH_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "'%s' is too deep", src);
	if (S_ISDIR(st.st_mode))
		return add_dir(list, src, dst, depth, err);
	o = json_object_new_object();
	json_object_object_add(o, "path", json_object_new_string(dst));
	if (S_ISLNK(st.st_mode)) {
		r = add_link(o, src, err);
	} else {
		snprintf(mode, sizeof(mode), "%04o", st.st_mode & 0777u);
		json_object_object_add(o, "mode", json_object_new_string(mode));
		r = add_content(o, src, err);
	}
	json_object_array_add(list, o);
	return r;
}

int job_files_add(struct json_object *list, const char *text, struct nsbox_error *err)
{
	const char *colon = strrchr(text, ':');
	auto_free char *src = strndup(text, colon ? (size_t)(colon - text) : strlen(text));
	const char *dst = colon ? colon + 1 : NULL, *slash;
	struct stat st;

	if (!src)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", text);
	while (strlen(src) > 1 && src[strlen(src) - 1] == '/')
		src[strlen(src) - 1] = 0;
	slash = strrchr(src, '/');
	if (!dst) /* a directory's content, a file under its own name */
		dst = stat(src, &st) == 0 && S_ISDIR(st.st_mode) ? "" : slash ? slash + 1 : src;
	return add(list, src, dst, 0, err);
}

/* ------------------------------------------------------------------ out of a result */

static int put_output(int fd, struct json_object *o, struct nsbox_error *err)
{
	const char *path = answer_text(o, "path"), *text = answer_text(o, "content_base64");
	auto_free unsigned char *data = NULL;
	size_t len = 0;

	if (!path || !text || base64_decode(text, strlen(text), &data, &len) < 0)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, 0, "an output of the service's answer");
	return nsbox_files_put_frame(fd, NSBOX_FRAME_FILE, path, 0644, data, len, err);
}

/* As a file stream, whose receiver trusts no path in it. */
int job_files_write(struct json_object *result, const char *dir, struct nsbox_error *err)
{
	const struct nsbox_files_limits lim = NSBOX_FILES_LIMITS_DEFAULT;
	auto_close int fd = make_memfd("nsbox-outputs", NULL, 0, false), dir_fd = -1;
	struct json_object *list = NULL;
	int r = 0;

	if (!json_object_object_get_ex(result, "outputs", &list))
		return 0;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make the directory '%s'", dir);
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || dir_fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the directory '%s'", dir);
	for (size_t i = 0; r == 0 && i < json_object_array_length(list); i++)
		r = put_output(fd, json_object_array_get_idx(list, i), err);
	if (r == 0)
		r = nsbox_files_end(fd, err);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "write outputs");
	return r == 0 ? nsbox_files_receive_dir(fd, dir_fd, &lim, NULL, NULL, err) : r;
}
