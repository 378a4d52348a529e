/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One layer on its way in.
 *
 *	archive -> (hash) -> nsbox-import -> writer -> layers/.new.N.M
 *	directory -> walker -> (hash) -> writer -> layers/.new.N.M
 *	a sandbox's upper layer -> (hash) -> writer -> layers/.new.N.M
 *
 * Reader, walker and writer are processes of their own; here bytes are moved and hashed.
 */
#include "overlay/image/import.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "nsbox/util.h"

#define CHUNK (256u << 10)

/* ------------------------------------------------------------------ the writer's side */

struct writing {
	int in, layers_fd;
	struct layer_options opt;
	char tmp[TMP_NAME];
	struct layer_sums sums; /* the result: hence in shared memory */
};

static int write_layer(void *ctx, struct nsbox_error *err)
{
	struct writing *w = ctx;
	auto_close int fd = -1;

	if (mkdirat(w->layers_fd, w->tmp, 0700) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "create a layer in the state directory");
	fd = openat(w->layers_fd, w->tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the new layer");
	return layer_write(w->in, fd, &w->opt, &w->sums, err);
}

static struct writing *writing_new(struct import *m, int in)
{
	struct writing *w =
		mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (w == MAP_FAILED)
		return NULL;
	w->in = in;
	w->layers_fd = m->s.layers_fd;
	w->opt = (struct layer_options){ .own = m->s.own_ids, .lim = m->left };
	nsbox_format(w->tmp, sizeof(w->tmp), ".new.%d.%u", (int)getpid(), m->serial++);
	return w;
}

/* ------------------------------------------------------------------ moving bytes */

struct pump {
	struct import *m;
	const char *what;
	uint64_t done, total;
	EVP_MD_CTX *hash;
};

static int tell(struct pump *p)
{
	const struct image_import *in = p->m->in;

	if (in->progress && in->progress(in->ctx, p->what, p->done, p->total))
		return nsbox_fail(p->m->err, NSBOX_E_CANCELLED, EINTR, "the import was cancelled");
	return 0;
}

/* All of `from` to `to`, through the hash. A receiver that went away is no error: it says why. */
static int pump(struct pump *p, int from, int to)
{
	auto_free unsigned char *buf = malloc(CHUNK);
	bool gone = false;

	if (!buf)
		return nsbox_fail(p->m->err, NSBOX_E_NOMEM, ENOMEM, "read the image");
	for (;;) {
		ssize_t n = read(from, buf, CHUNK);
		int r;

		if (n < 0 && errno != EINTR)
			return nsbox_fail(p->m->err, NSBOX_E_IO, errno, "read %s", p->what);
		if (n > 0 && !EVP_DigestUpdate(p->hash, buf, (size_t)n))
			return nsbox_fail(p->m->err, NSBOX_E_NOMEM, ENOMEM, "hash %s", p->what);
		if (n > 0 && write_full(to, buf, (size_t)n) < 0)
			gone = true;
		p->done += n > 0 ? (uint64_t)n : 0;
		r = tell(p);
		if (r < 0)
			return r;
		if (n == 0 || gone)
			return 0;
	}
}

int import_hash_text(EVP_MD_CTX *ctx, char ret[DIGEST_TEXT], struct nsbox_error *err)
{
	unsigned char md[32];
	unsigned n = 0;

	if (!EVP_DigestFinal_ex(ctx, md, &n) || n != sizeof(md))
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compute a SHA-256");
	for (unsigned i = 0; i < n; i++)
		snprintf(ret + (size_t)2 * i, 3, "%02x", md[i]);
	return 0;
}

/* ------------------------------------------------------------------ the processes of a layer */

pid_t import_start_reader(struct import *m, const char *const *args, int in, int out)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		dup2(in, 0);
		dup2(out, 1);
		execv(m->in->reader, (char *const *)args);
		_exit(127);
	}
	return pid < 0 ? nsbox_fail(m->err, NSBOX_E_NOMEM, errno, "fork '%s'", m->in->reader) : pid;
}

static pid_t start_walker(struct import *m, int dir_fd, int out)
{
	struct nsbox_error why = { 0 };
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		signal(SIGINT, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		_exit(layer_send_dir(out, dir_fd, &why) < 0);
	}
	return pid < 0 ? nsbox_fail(m->err, NSBOX_E_NOMEM, errno, "fork to read the directory")
		       : pid;
}

static int reap(struct import *m, pid_t pid, bool kill_it)
{
	int status = 0;

	if (kill_it)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return nsbox_fail(m->err, NSBOX_E_IO, ENOENT, "run '%s'", m->in->reader);
	if (WIFSIGNALED(status) && !kill_it && WTERMSIG(status) != SIGPIPE)
		return nsbox_fail(m->err, NSBOX_E_LIMIT, 0,
				  "the reader of images was ended by signal %d (%s)",
				  WTERMSIG(status),
				  WTERMSIG(status) == SIGXCPU ? "its limit of processor time"
							      : "it is damaged, or was killed");
	return 0;
}

/*
 * One stage is ours: it moves the bytes that are hashed. Where a layer comes from an archive that
 * is before the reader, for a directory it is behind the walker.
 */
enum origin { FROM_ARCHIVE, FROM_DIRECTORY, FROM_STREAM };

struct flow {
	int into[2];   /* we write, the reader reads (archives) */
	int stream[2]; /* the layer stream, into the writer */
	int walked[2]; /* the walker's, before it is hashed (directories) */
	pid_t producer;
	struct writing *w;
	struct owner_task writer;
	EVP_MD_CTX *hash;
};

static void flow_close(struct flow *f)
{
	for (int i = 0; i < 2; i++) {
		close_fd(&f->into[i]);
		close_fd(&f->stream[i]);
		close_fd(&f->walked[i]);
	}
}

static int flow_open(struct import *m, struct flow *f, enum origin origin)
{
	*f = (struct flow){ { -1, -1 }, { -1, -1 }, { -1, -1 }, .producer = -1 };
	f->writer = (struct owner_task){ -1, -1 };
	f->hash = EVP_MD_CTX_new();
	if (!f->hash || !EVP_DigestInit_ex(f->hash, EVP_sha256(), NULL))
		return nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "compute a SHA-256");
	/* A socket: writing to a reader that went away is an error and never a signal. */
	if (pipe2(f->stream, O_CLOEXEC) < 0 ||
	    (origin == FROM_ARCHIVE &&
	     socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->into) < 0) ||
	    (origin == FROM_DIRECTORY && pipe2(f->walked, O_CLOEXEC) < 0))
		return nsbox_fail(m->err, NSBOX_E_NOMEM, errno, "make a pipe");
	f->w = writing_new(m, f->stream[0]);
	if (!f->w)
		return nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "write a layer");
	return owner_start(&m->s, write_layer, f->w, f->stream, 1, &f->writer, m->err);
}

static int flow_start(struct import *m, struct flow *f, int from, bool layered, enum origin origin)
{
	char bytes[24], entries[16];
	const char *args[] = { "nsbox-import", layered ? "layer" : "tar", bytes, entries, NULL };
	int r = flow_open(m, f, origin);

	if (r < 0)
		return r;
	nsbox_format(bytes, sizeof(bytes), "%llu", (unsigned long long)m->left.bytes);
	nsbox_format(entries, sizeof(entries), "%u", m->left.entries);
	close_fd(&f->stream[0]);
	if (origin == FROM_STREAM)
		return 0;
	f->producer = origin == FROM_ARCHIVE
			      ? import_start_reader(m, args, f->into[1], f->stream[1])
			      : start_walker(m, from, f->walked[1]);
	if (f->producer < 0)
		return f->producer;
	close_fd(&f->into[1]);
	close_fd(&f->walked[1]);
	if (origin == FROM_ARCHIVE)
		close_fd(&f->stream[1]);
	return 0;
}

/* What the writer says comes first: it has heard the reader's reason, if there is one. */
static int flow_end(struct import *m, struct flow *f, int r)
{
	struct nsbox_error first = { 0 }, second = { 0 }, *err = m->err;
	int w = 0, p = 0;

	flow_close(f);
	if (f->writer.pid > 0) {
		w = owner_wait(&f->writer, &first);
	}
	m->err = &second;
	if (f->producer > 0)
		p = reap(m, f->producer, r < 0);
	m->err = err;
	EVP_MD_CTX_free(f->hash);
	if (r < 0)
		return r;
	/* A reader that died is why the writer found no end. */
	if (p < 0 && (w == 0 || first.code == NSBOX_E_PROTOCOL)) {
		*err = second;
		return p;
	}
	if (w < 0)
		*err = first;
	return w;
}

static int run_flow(struct import *m, int from, const char *what, uint64_t total, bool layered,
		    enum origin origin, struct incoming *ret)
{
	struct pump p = { .m = m, .what = what, .total = total };
	struct flow f;
	int r = flow_start(m, &f, from, layered, origin);

	p.hash = f.hash;
	if (r == 0)
		r = origin == FROM_ARCHIVE
			    ? pump(&p, from, f.into[0])
			    : pump(&p, origin == FROM_STREAM ? from : f.walked[0], f.stream[1]);
	if (r == 0)
		r = import_hash_text(f.hash, ret->digest, m->err);
	r = flow_end(m, &f, r);
	if (f.w) {
		ret->sums = f.w->sums;
		memcpy(ret->tmp, f.w->tmp, sizeof(ret->tmp));
		munmap(f.w, sizeof(*f.w));
		if (r < 0)
			import_drop(m, ret);
	}
	return r;
}

int import_archive(struct import *m, int fd, const char *what, uint64_t total, bool layered,
		   struct incoming *ret)
{
	return run_flow(m, fd, what, total, layered, FROM_ARCHIVE, ret);
}

int import_directory(struct import *m, int dir_fd, struct incoming *ret)
{
	return run_flow(m, dir_fd, "the directory", 0, false, FROM_DIRECTORY, ret);
}

int import_stream(struct import *m, int fd, struct incoming *ret)
{
	return run_flow(m, fd, "the changes", 0, false, FROM_STREAM, ret);
}

/* ------------------------------------------------------------------ layers of the image */

void import_drop(struct import *m, const struct incoming *in)
{
	owner_remove_layer(&m->s, in->tmp, NULL);
}

static struct pending *find_pending(const struct import *m, const char *digest)
{
	for (size_t i = 0; i < m->pendings; i++)
		if (!strcmp(m->pending[i].digest, digest))
			return &m->pending[i];
	return NULL;
}

const char *import_layer_place(const struct import *m, const char *digest)
{
	const struct pending *p = find_pending(m, digest);

	return p ? p->tmp : digest;
}

/* The same layer again hides all of its earlier self: overlayfs takes each but once. */
static int add_layer(struct import *m, const char *digest, uint64_t bytes)
{
	struct image_index *x = &m->x;
	size_t n = 0;

	for (size_t i = 0; i < x->layers; i++)
		if (strcmp(x->layer[i].digest, digest) != 0)
			x->layer[n++] = x->layer[i];
	x->layers = n;
	return index_add_layer(x, digest, bytes, m->err);
}

int import_keep(struct import *m, const struct incoming *in)
{
	struct pending *p;

	m->skipped += in->sums.skipped;
	m->left.bytes -= MIN(in->sums.bytes, m->left.bytes);
	m->left.entries -= MIN(in->sums.entries, m->left.entries);
	m->x.entries += in->sums.entries;
	if (find_pending(m, in->digest)) {
		import_drop(m, in);
		return add_layer(m, in->digest, in->sums.bytes);
	}
	p = reallocarray(m->pending, m->pendings + 1, sizeof(*p));
	if (!p)
		return nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "list the layers");
	m->pending = p;
	p = &m->pending[m->pendings++];
	memcpy(p->tmp, in->tmp, sizeof(p->tmp));
	memcpy(p->digest, in->digest, sizeof(p->digest));
	return add_layer(m, in->digest, in->sums.bytes);
}

struct reuse {
	const struct store *s;
	const char *digest;
	uint64_t bytes;
	bool found;
	struct nsbox_error *err;
};

static int look_in_index(void *ctx, const char *name, const char *id)
{
	struct reuse *u = ctx;
	struct image_index x = { 0 };
	auto_close int fd = -1;

	if (u->found || index_open(u->s, id, 0, &fd, NULL) < 0 || index_read(fd, &x, NULL) < 0)
		return 0;
	for (size_t i = 0; i < x.layers; i++)
		if (!strcmp(x.layer[i].digest, u->digest)) {
			u->found = true;
			u->bytes = x.layer[i].bytes;
		}
	index_done(&x);
	return 0;
}

/* Only what an index names was put in place as a whole. */
int import_reuse(struct import *m, const char *digest)
{
	struct reuse u = { .s = &m->s, .digest = digest };
	int r;

	for (size_t i = 0; i < m->x.layers; i++)
		if (!strcmp(m->x.layer[i].digest, digest)) {
			u.found = true;
			u.bytes = m->x.layer[i].bytes;
		}
	r = u.found ? 0 : store_names(&m->s, look_in_index, &u, m->err);
	if (r < 0 || !u.found ||
	    (!find_pending(m, digest) &&
	     faccessat(m->s.layers_fd, digest, F_OK, AT_SYMLINK_NOFOLLOW) < 0))
		return MIN(r, 0);
	r = add_layer(m, digest, u.bytes);
	return r < 0 ? r : 1;
}
