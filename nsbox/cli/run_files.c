/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes in with a run: the skill, the files of --put, the archive of --unpack, as one file
 * stream in a memfd. Directories are read with the caller's own rights; archives are parsed by a
 * confined worker only.
 */
#include "nsbox/cli/run.h"

#include <errno.h>
#include <fcntl.h>
#include <nsbox/files.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "nsbox/cli/cli.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "policy/skill/text.h"

#define FILES_MAX (256u << 20)

const char *run_work_dir(const struct run *c)
{
	const struct blob *b = plan_blob(c->plan);

	return c->cwd ? c->cwd : blob_get_str(b, blob_fixed(b, struct plan_fixed)->workdir);
}

static int send_dir(struct run *c, const char *dir, struct nsbox_error *err)
{
	const struct nsbox_files_limits lim = NSBOX_FILES_LIMITS_DEFAULT;
	auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the directory '%s'", dir);
	r = nsbox_files_send_dir(c->files, fd, &lim, err);
	if (r < 0)
		nsbox_error_prefix(err, "%s", dir);
	return r;
}

static int base_frame(struct run *c, const char *path, struct nsbox_error *err)
{
	return nsbox_files_put_frame(c->files, NSBOX_FRAME_BASE, path, 0, NULL, 0, err);
}

static int put_file(struct run *c, const char *src, const char *dst, struct nsbox_error *err)
{
	auto_free char *data = NULL;
	struct stat st;
	size_t len;
	int r = cli_read_file(src, FILES_MAX, &data, &len, err);

	if (r < 0)
		return r;
	if (stat(src, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "look at '%s'", src);
	r = nsbox_files_check_path(dst, strlen(dst), err);
	if (r < 0)
		return r;
	return nsbox_files_put_frame(c->files, NSBOX_FRAME_FILE, dst, st.st_mode & 0777, data, len,
				     err);
}

/* SRC[:DST]; the last colon divides, unless the whole names something that exists. */
static int put(struct run *c, const char *arg, struct nsbox_error *err)
{
	auto_free char *src = strdup(arg);
	char *colon = src ? strrchr(src, ':') : NULL, *slash;
	char base[4096];
	const char *dst;
	struct stat st;
	int r;

	if (!src)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "--put");
	if (colon && access(src, F_OK) < 0)
		*colon = '\0';
	else
		colon = NULL;
	while ((slash = strrchr(src, '/')) && slash != src && !slash[1])
		*slash = '\0';
	dst = colon ? colon + 1 : (slash = strrchr(src, '/')) ? slash + 1 : src;
	if (stat(src, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "--put '%s'", src);
	if (!S_ISDIR(st.st_mode)) {
		r = base_frame(c, run_work_dir(c), err);
		return r < 0 ? r : put_file(c, src, dst, err);
	}
	if (!strcmp(dst, ".") || !*dst)
		nsbox_format(base, sizeof(base), "%s", run_work_dir(c));
	else
		nsbox_format(base, sizeof(base), "%s/%s", run_work_dir(c), dst);
	r = base_frame(c, base, err);
	return r < 0 ? r : send_dir(c, src, err);
}

/* What the worker wrote, read to its end: its notices are shown, its refusal is ours. */
struct unpacked {
	int kind;
	char path[4096], note[4096];
	size_t have;
};

static int on_begin(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		    struct nsbox_error *err)
{
	struct unpacked *u = ctx;

	u->kind = kind;
	u->have = 0;
	nsbox_format(u->path, sizeof(u->path), "%s", path);
	return 0;
}

static int on_data(void *ctx, const void *buf, size_t len, struct nsbox_error *err)
{
	struct unpacked *u = ctx;

	if (u->kind == NSBOX_FRAME_NOTE && u->have + len < sizeof(u->note)) {
		memcpy(u->note + u->have, buf, len);
		u->have += len;
	}
	return 0;
}

static int on_finish(void *ctx, struct nsbox_error *err)
{
	const struct unpacked *u = ctx;
	auto_free char *shown = NULL;

	if (u->kind != NSBOX_FRAME_NOTE)
		return 0;
	shown = text_shown(u->path, strlen(u->path));
	fprintf(stderr, "nsbox: '%s': %.*s\n", shown ? shown : "?", (int)u->have, u->note);
	return 0;
}

static int check_unpacked(struct run *c, const char *archive, off_t from, struct nsbox_error *err)
{
	const struct nsbox_files_sink sink = { on_begin, on_data, on_finish };
	const struct nsbox_files_limits lim = NSBOX_FILES_LIMITS_DEFAULT;
	auto_free struct unpacked *u = calloc(1, sizeof(*u));
	struct nsbox_files_reader *reader;
	char buf[65536];
	ssize_t n;
	int r = u ? nsbox_files_reader_new(&sink, u, &lim, &reader, err)
		  : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "unpack");

	if (r < 0)
		return r;
	while (r == 0 && (n = pread(c->files, buf, sizeof(buf), from)) > 0) {
		r = nsbox_files_feed(reader, buf, (size_t)n, err);
		from += n;
	}
	if (r == 0 && !nsbox_files_done(reader))
		r = nsbox_fail(err, NSBOX_E_INVALID, 0, "the unpacking worker ended early");
	nsbox_files_reader_free(reader);
	if (r < 0)
		nsbox_error_prefix(err, "unpack '%s'", archive);
	return r;
}

/* The archive goes through the confined worker; its frames, END included, follow ours. */
static int unpack(struct run *c, const char *archive, struct nsbox_error *err)
{
	char path[4096];
	const char *worker = cli_libexec("nsbox-unpack", path, sizeof(path));
	auto_close int in = open(archive, O_RDONLY | O_CLOEXEC);
	int status;
	pid_t pid;
	int r = base_frame(c, run_work_dir(c), err);
	off_t from = lseek(c->files, 0, SEEK_CUR);

	if (r < 0)
		return r;
	if (in < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", archive);
	pid = fork();
	if (pid == 0) {
		dup2(in, 0);
		dup2(c->files, 1);
		execl(worker, "nsbox-unpack", (char *)NULL);
		_exit(127);
	}
	if (pid < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "fork '%s'", worker);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return nsbox_fail(err, NSBOX_E_IO, ENOENT, "run '%s'", worker);
	return check_unpacked(c, archive, from, err);
}

int run_make_files(struct run *c, struct nsbox_error *err)
{
	const struct run_options *o = c->opt;
	int r = 0;

	if (!o->skill && !o->puts && !o->unpack)
		return 0;
	c->files = memfd_create("nsbox-files", MFD_CLOEXEC);
	if (c->files < 0)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "make a memfd for files");
	if (o->skill) {
		r = base_frame(c, c->skill_dir, err);
		if (r == 0)
			r = send_dir(c, o->skill, err);
	}
	for (unsigned i = 0; r == 0 && i < o->puts; i++)
		r = put(c, o->put[i], err);
	if (r == 0)
		r = o->unpack ? unpack(c, o->unpack, err) : nsbox_files_end(c->files, err);
	if (r == 0 && lseek(c->files, 0, SEEK_SET) < 0)
		r = nsbox_fail(err, NSBOX_E_IO, errno, "rewind the files");
	return r;
}
