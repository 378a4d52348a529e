/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file stream: round trips, hostile streams, globs, collecting.
 *
 * The tree that is sent:
 *
 *	run.sh		0755
 *	empty		0644, no content
 *	sub/deep/data	0640, 100,000 bytes
 *	sub/link	-> deep/data
 *	none/		no entries
 */
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "nsbox/files_child.h"
#include "nsbox/files_format.h"
#include "nsbox/util.h"

/* The rows of `hostile` name the one field in which they differ from a good frame. */
#pragma GCC diagnostic ignored "-Woverride-init"

#define DATA_SIZE 100000

static char top[] = "/tmp/nsbox-files.XXXXXX";
static int src_fd, dst_fd, root_fd;
static unsigned char data[DATA_SIZE];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int open_dir_at(int at, const char *name)
{
	ck_assert_int_eq(mkdirat(at, name, 0755), 0);
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void put_file(int at, const char *path, mode_t mode, const void *buf, size_t len)
{
	auto_close int fd = openat(at, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write_full(fd, buf, len), 0);
	ck_assert_int_eq(fchmod(fd, mode), 0);
}

/* top/src is sent, top/dst receives, top/root is the "/" of a sandbox. */
static void setup(void)
{
	auto_close int top_fd = -1;

	strcpy(top, "/tmp/nsbox-files.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
	top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	src_fd = open_dir_at(top_fd, "src");
	dst_fd = open_dir_at(top_fd, "dst");
	root_fd = open_dir_at(top_fd, "root");
	ck_assert_int_eq(mkdirat(root_fd, "workspace", 0755), 0);
	ck_assert_int_eq(mkdirat(root_fd, "skills", 0755), 0);
	ck_assert_int_eq(mkdirat(root_fd, "etc", 0755), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7 + i / 251);
	put_file(src_fd, "run.sh", 0755, "#!/bin/sh\n", 10);
	put_file(src_fd, "empty", 0644, "", 0);
	ck_assert_int_eq(mkdirat(src_fd, "sub", 0755), 0);
	ck_assert_int_eq(mkdirat(src_fd, "sub/deep", 0755), 0);
	ck_assert_int_eq(mkdirat(src_fd, "none", 0755), 0);
	put_file(src_fd, "sub/deep/data", 0640, data, sizeof(data));
	ck_assert_int_eq(symlinkat("deep/data", src_fd, "sub/link"), 0);
}

static void teardown(void)
{
	close_fd(&src_fd);
	close_fd(&dst_fd);
	close_fd(&root_fd);
	nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int new_stream(void)
{
	int fd = memfd_create("stream", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void rewind_fd(int fd)
{
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
}

static void check_file(int at, const char *path, mode_t mode, const void *want, size_t len)
{
	auto_close int fd = openat(at, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *got = malloc(len + 1);
	struct stat st;

	ck_assert_msg(fd >= 0, "%s is missing", path);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, mode);
	ck_assert_int_eq(st.st_size, (off_t)len);
	ck_assert_int_eq(read_full(fd, got, len), 0);
	ck_assert_int_eq(memcmp(got, want, len), 0);
}

static bool is_there(int at, const char *path)
{
	struct stat st;

	return fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ------------------------------------------------------------------ round trips */

START_TEST(test_send_and_unpack)
{
	struct nsbox_error err = { 0 };
	auto_close int fd = new_stream();
	char target[32] = "";
	struct stat st;

	ck_assert_int_eq(
		nsbox_files_put_frame(fd, NSBOX_FRAME_BASE, "/skills/demo", 0, NULL, 0, &err), 0);
	ck_assert_msg(nsbox_files_send_dir(fd, src_fd, NULL, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(nsbox_files_end(fd, &err), 0);
	rewind_fd(fd);
	ck_assert_msg(files_child_unpack(fd, root_fd, NULL, "/workspace", &err) == 0, "%s",
		      err.msg);
	check_file(root_fd, "skills/demo/run.sh", 0755, "#!/bin/sh\n", 10);
	check_file(root_fd, "skills/demo/empty", 0644, "", 0);
	check_file(root_fd, "skills/demo/sub/deep/data", 0640, data, sizeof(data));
	ck_assert_int_eq(readlinkat(root_fd, "skills/demo/sub/link", target, sizeof(target) - 1),
			 9);
	ck_assert_str_eq(target, "deep/data");
	ck_assert_int_eq(fstatat(root_fd, "skills/demo/none", &st, 0), 0);
	ck_assert(S_ISDIR(st.st_mode));
}
END_TEST

START_TEST(test_send_is_stable)
{
	auto_close int one = new_stream(), two = new_stream();
	struct stat a, b;
	void *pa, *pb;

	ck_assert_int_eq(nsbox_files_send_dir(one, src_fd, NULL, NULL), 0);
	ck_assert_int_eq(nsbox_files_send_dir(two, src_fd, NULL, NULL), 0);
	fstat(one, &a);
	fstat(two, &b);
	ck_assert_int_eq(a.st_size, b.st_size);
	pa = mmap(NULL, (size_t)a.st_size, PROT_READ, MAP_PRIVATE, one, 0);
	pb = mmap(NULL, (size_t)b.st_size, PROT_READ, MAP_PRIVATE, two, 0);
	ck_assert_int_eq(memcmp(pa, pb, (size_t)a.st_size), 0);
	munmap(pa, (size_t)a.st_size);
	munmap(pb, (size_t)b.st_size);
}
END_TEST

START_TEST(test_send_refuses)
{
	struct nsbox_files_limits small = { .total_bytes = DATA_SIZE + 18, .files = 20 };
	struct nsbox_files_limits few = { .total_bytes = 1 << 20, .files = 6 };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct nsbox_error err = { 0 };
	auto_close int fd = new_stream();

	/* the twin of each: the tree as it is */
	ck_assert_int_eq(nsbox_files_send_dir(fd, src_fd, NULL, &err), 0);

	ck_assert_int_lt(nsbox_files_send_dir(fd, src_fd, &small, &err), 0);
	ck_assert_int_eq(err.code, NSBOX_E_LIMIT);
	small.total_bytes++;
	ck_assert_int_eq(nsbox_files_send_dir(fd, src_fd, &small, &err), 0);
	ck_assert_int_lt(nsbox_files_send_dir(fd, src_fd, &few, &err), 0);
	ck_assert_int_eq(err.code, NSBOX_E_LIMIT);
	few.files++;
	ck_assert_int_eq(nsbox_files_send_dir(fd, src_fd, &few, &err), 0);

	ck_assert_int_eq(mkfifoat(src_fd, "sub/pipe", 0600), 0);
	ck_assert_int_lt(nsbox_files_send_dir(fd, src_fd, NULL, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "sub/pipe"));
	unlinkat(src_fd, "sub/pipe", 0);

	{
		auto_close int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		snprintf(un.sun_path, sizeof(un.sun_path), "%s/src/sock", top);
		ck_assert_int_eq(bind(sock, (struct sockaddr *)&un, sizeof(un)), 0);
	}
	ck_assert_int_lt(nsbox_files_send_dir(fd, src_fd, NULL, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "'sock'"));
	unlinkat(src_fd, "sock", 0);
}
END_TEST

static const struct {
	const char *path, *target;
	bool good;
} links[] = {
	{ "l", "run.sh", true },	{ "l", "../run.sh", false },
	{ "sub/l", "../run.sh", true }, { "sub/l", "../../run.sh", false },
	{ "l", "/etc/passwd", false },	{ "l", "nowhere", true },
	{ "l", "sub/../run.sh", true }, { "l", "sub/../../x", false },
	{ "sub/l", "./.././x", true },
};

START_TEST(test_send_link)
{
	struct nsbox_error err = { 0 };
	auto_close int fd = new_stream();
	int r;

	ck_assert_int_eq(symlinkat(links[_i].target, src_fd, links[_i].path), 0);
	r = nsbox_files_send_dir(fd, src_fd, NULL, &err);
	ck_assert_msg((r == 0) == links[_i].good, "%s -> %s: %d", links[_i].path, links[_i].target,
		      r);
	if (r < 0)
		ck_assert_ptr_nonnull(strstr(err.msg, links[_i].path));
}
END_TEST

/* ------------------------------------------------------------------ paths */

static const struct {
	const char *path;
	size_t len;
	bool good;
} paths[] = {
#define PATH(s, good)                                                                              \
	{                                                                                          \
		s, sizeof(s) - 1, good                                                             \
	}
	PATH("a", true),     PATH("a/b", true),	  PATH("...", true),	 PATH(".x", true),
	PATH("a b\n", true), PATH("\xff", true),  PATH("..a/b..", true), PATH("", false),
	PATH("/a", false),   PATH("a/", false),	  PATH("a//b", false),	 PATH(".", false),
	PATH("..", false),   PATH("./a", false),  PATH("a/.", false),	 PATH("a/../b", false),
	PATH("a/..", false), PATH("a\0b", false), PATH("/", false),
#undef PATH
};

START_TEST(test_path)
{
	ck_assert_int_eq(nsbox_files_check_path(paths[_i].path, paths[_i].len, NULL) == 0,
			 paths[_i].good);
}
END_TEST

START_TEST(test_path_lengths)
{
	char path[5000];

	memset(path, 'a', sizeof(path));
	ck_assert_int_eq(nsbox_files_check_path(path, 255, NULL), 0);
	ck_assert_int_lt(nsbox_files_check_path(path, 256, NULL), 0);
	for (size_t i = 200; i < sizeof(path); i += 200)
		path[i] = '/';
	ck_assert_int_eq(nsbox_files_check_path(path, 4095, NULL), 0);
	ck_assert_int_lt(nsbox_files_check_path(path, 4096, NULL), 0);
}
END_TEST

/* ------------------------------------------------------------------ hostile streams */

struct raw {
	struct nsbox_frame f;
	const char *path;
	const char *content;
};
#define F(k, p, c, ...)                                                                            \
	{                                                                                          \
		{ .magic = NSBOX_FRAME_MAGIC,                                                      \
		  .kind = (k),                                                                     \
		  .path_len = sizeof(p) - 1,                                                       \
		  .size = sizeof(c) - 1,                                                           \
		  __VA_ARGS__ },                                                                   \
			(p), (c)                                                                   \
	}
#define END_FRAME F(NSBOX_FRAME_END, "", "")

/* Each stands between a good file and END; the twin is the stream without it. */
static const struct {
	const char *what;
	struct raw frame;
	const char *says; /* part of the message, or NULL */
	bool reader_too;  /* the incremental reader sees it as well */
} hostile[] = {
	/* clang-format off */
	{ "magic", F(NSBOX_FRAME_FILE, "x", "y", .magic = 1), "not a frame", true },
	{ "kind 0", F(0, "x", "y"), "unknown kind", true },
	{ "kind 9", F(9, "x", "y"), "unknown kind", true },
	{ "info without its struct", F(7, "x", "y"), "description", true },
	{ "match without its struct", F(8, "x", "y"), "match", true },
	{ "dot dot", F(NSBOX_FRAME_FILE, "../x", "y"), "'..'", true },
	{ "inner dot dot", F(NSBOX_FRAME_FILE, "a/../../x", "y"), "'..'", true },
	{ "absolute", F(NSBOX_FRAME_FILE, "/etc/x", "y"), "absolute", true },
	{ "empty component", F(NSBOX_FRAME_DIR, "a//b", ""), "empty component", true },
	{ "NUL", F(NSBOX_FRAME_FILE, "a\0b", "y"), "NUL", true },
	{ "no path", F(NSBOX_FRAME_FILE, "", "y"), "without a path", true },
	{ "directory with content", F(NSBOX_FRAME_DIR, "d", "y"), "content", true },
	{ "link without target", F(NSBOX_FRAME_SYMLINK, "l", ""), "target", true },
	{ "link with a long target", F(NSBOX_FRAME_SYMLINK, "l", "y", .size = 4096), "target", true },
	{ "long note", F(NSBOX_FRAME_NOTE, "n", "y", .size = 4096), "long", true },
	{ "huge file", F(NSBOX_FRAME_FILE, "x", "y", .size = UINT64_MAX), "bytes together", true },
	{ "file over the limit", F(NSBOX_FRAME_FILE, "x", "y", .size = (256u << 20) + 1), "bytes together", true },
	{ "mode", F(NSBOX_FRAME_FILE, "x", "y", .mode = 0170644), "mode", true },
	{ "code", F(NSBOX_FRAME_FILE, "x", "y", .aux = 1), "code", true },
	{ "end with a path", F(NSBOX_FRAME_END, "x", ""), "end with a path", true },
	{ "end with an unknown code", F(NSBOX_FRAME_END, "", "", .aux = NSBOX_E_CODE_MAX), "unknown code", true },
	{ "end with a long text", F(NSBOX_FRAME_END, "", "", .aux = 1, .size = 480), "long text", true },
	{ "end with an error", F(NSBOX_FRAME_END, "", "entry 'e\x1bvil'", .aux = NSBOX_E_INVALID), "entry 'e?vil'", true },
	{ "relative base", F(NSBOX_FRAME_BASE, "tmp", ""), "base", true },
	{ "base with dot dot", F(NSBOX_FRAME_BASE, "/tmp/../etc", ""), "'..'", true },
	{ "base elsewhere", F(NSBOX_FRAME_BASE, "/etc", ""), "not allowed", false },
	{ "base beside", F(NSBOX_FRAME_BASE, "/workspaces", ""), "not allowed", false },
	{ "base above the skills", F(NSBOX_FRAME_BASE, "/skills", ""), "not allowed", false },
	{ "base at the top", F(NSBOX_FRAME_BASE, "/", ""), "empty", true },
	{ "below a file", F(NSBOX_FRAME_FILE, "good/x", "y"), "good/x", false },
	{ "in place of a directory", F(NSBOX_FRAME_FILE, "dir", "y"), "dir", false },
	{ "link target with NUL", F(NSBOX_FRAME_SYMLINK, "l", "a\0b"), "NUL", false },
	/* clang-format on */
};

static void put_raw(int fd, const struct raw *r, size_t content)
{
	ck_assert_int_eq(write_full(fd, &r->f, sizeof(r->f)), 0);
	ck_assert_int_eq(write_full(fd, r->path, r->f.path_len), 0);
	ck_assert_int_eq(write_full(fd, r->content, content), 0);
}

static size_t content_size(const struct raw *r)
{
	return r->f.size < 100 ? (size_t)r->f.size : 1;
}

static const struct raw good_file = F(NSBOX_FRAME_FILE, "good", "content", .mode = 0644);
static const struct raw good_dir = F(NSBOX_FRAME_DIR, "dir", "", .mode = 0755);
static const struct raw end_frame = END_FRAME;

static int hostile_stream(const struct raw *bad)
{
	int fd = new_stream();

	put_raw(fd, &good_file, 7);
	put_raw(fd, &good_dir, 0);
	if (bad)
		put_raw(fd, bad, content_size(bad));
	put_raw(fd, &end_frame, 0);
	rewind_fd(fd);
	return fd;
}

static int feed_all(int fd, size_t chunk, struct nsbox_error *err)
{
	static const struct nsbox_files_sink no_sink;
	struct nsbox_files_reader *reader;
	char buf[4096];
	int r = 0;
	ssize_t n;

	ck_assert_int_eq(nsbox_files_reader_new(&no_sink, NULL, NULL, &reader, err), 0);
	while (r == 0 && (n = read(fd, buf, MIN(chunk, sizeof(buf)))) > 0)
		r = nsbox_files_feed(reader, buf, (size_t)n, err);
	if (r == 0 && !nsbox_files_done(reader))
		r = -ENODATA;
	if (r < 0 && r != -ENODATA) /* once broken, always broken */
		ck_assert_int_eq(nsbox_files_feed(reader, "x", 1, NULL), r);
	nsbox_files_reader_free(reader);
	return r;
}

START_TEST(test_hostile)
{
	struct nsbox_error err = { 0 };
	auto_close int bad = hostile_stream(&hostile[_i].frame);
	auto_close int twin = hostile_stream(NULL);

	ck_assert_int_lt(files_child_unpack(bad, root_fd, NULL, "/workspace", &err), 0);
	ck_assert_msg(strstr(err.msg, hostile[_i].says) != NULL, "%s: %s", hostile[_i].what,
		      err.msg);
	ck_assert(!is_there(root_fd, "etc/x") && !is_there(root_fd, "x"));
	ck_assert_int_eq(files_child_unpack(twin, root_fd, NULL, "/workspace", &err), 0);
	check_file(root_fd, "workspace/good", 0644, "content", 7);
}
END_TEST

START_TEST(test_hostile_reader)
{
	static const size_t chunks[] = { 1, 3, 4096 };
	struct nsbox_error err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
		auto_close int bad = hostile_stream(&hostile[_i].frame);
		auto_close int twin = hostile_stream(NULL);
		int r = feed_all(bad, chunks[i], &err);

		ck_assert_int_eq(r < 0, hostile[_i].reader_too);
		if (r < 0)
			ck_assert_msg(strstr(err.msg, hostile[_i].says), "%s", err.msg);
		ck_assert_int_eq(feed_all(twin, chunks[i], &err), 0);
	}
}
END_TEST

START_TEST(test_truncated)
{
	struct nsbox_error err = { 0 };
	auto_close int whole = hostile_stream(NULL);
	struct stat st;

	fstat(whole, &st);
	for (off_t cut = 0; cut < st.st_size; cut++) {
		auto_close int fd = hostile_stream(NULL);

		ck_assert_int_eq(ftruncate(fd, cut), 0);
		ck_assert_int_eq(feed_all(fd, 5, &err), -ENODATA);
		rewind_fd(fd);
		ck_assert_int_lt(files_child_unpack(fd, root_fd, NULL, "/workspace", &err), 0);
		rewind_fd(fd);
		ck_assert_int_lt(nsbox_files_receive_dir(fd, dst_fd, NULL, NULL, NULL, &err), 0);
	}
	ck_assert_int_eq(feed_all(whole, 5, &err), 0);
}
END_TEST

/* A link of the stream, or one that is there already, is never followed. */
START_TEST(test_through_links)
{
	static const struct raw link = F(NSBOX_FRAME_SYMLINK, "l", "/etc");
	static const struct raw up = F(NSBOX_FRAME_SYMLINK, "up", "../etc");
	static const struct raw through = F(NSBOX_FRAME_FILE, "l/x", "y");
	static const struct raw through_up = F(NSBOX_FRAME_DIR, "up/x", "");
	static const struct raw replace = F(NSBOX_FRAME_FILE, "l", "new", .mode = 0644);
	const struct raw *bad[] = { &through, &through_up };
	struct nsbox_error err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		auto_close int fd = new_stream();

		put_raw(fd, &link, 4);
		put_raw(fd, &up, 6);
		put_raw(fd, bad[i], content_size(bad[i]));
		put_raw(fd, &end_frame, 0);
		rewind_fd(fd);
		ck_assert_int_eq(files_child_unpack(fd, root_fd, NULL, "/workspace", &err), -ELOOP);
		ck_assert(!is_there(root_fd, "etc/x"));
	}
	auto_close int fd = new_stream();

	put_raw(fd, &replace, 3);
	put_raw(fd, &end_frame, 0);
	rewind_fd(fd);
	ck_assert_int_eq(files_child_unpack(fd, root_fd, NULL, "/workspace", &err), 0);
	check_file(root_fd, "workspace/l", 0644, "new", 3);
}
END_TEST

START_TEST(test_base_is_a_link)
{
	static const struct raw base = F(NSBOX_FRAME_BASE, "/skills/demo", "");
	auto_close int fd = new_stream();

	ck_assert_int_eq(symlinkat("../etc", root_fd, "skills/demo"), 0);
	put_raw(fd, &base, 0);
	put_raw(fd, &good_file, 7);
	put_raw(fd, &end_frame, 0);
	rewind_fd(fd);
	ck_assert_int_lt(files_child_unpack(fd, root_fd, NULL, "/workspace", NULL), 0);
	ck_assert(!is_there(root_fd, "etc/good"));
	unlinkat(root_fd, "skills/demo", 0);
	rewind_fd(fd);
	ck_assert_int_eq(files_child_unpack(fd, root_fd, NULL, "/workspace", NULL), 0);
	ck_assert(is_there(root_fd, "skills/demo/good"));
}
END_TEST

START_TEST(test_count_limit)
{
	struct nsbox_files_limits lim = { .total_bytes = 7, .files = 2 };
	auto_close int fd = hostile_stream(NULL);

	ck_assert_int_eq(files_child_unpack(fd, root_fd, &lim, "/workspace", NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct nsbox_files_limits less = lim;
		struct nsbox_error err = { 0 };

		if (i)
			less.files--;
		else
			less.total_bytes--;
		rewind_fd(fd);
		ck_assert_int_lt(files_child_unpack(fd, root_fd, &less, "/workspace", &err), 0);
		ck_assert_int_eq(err.code, NSBOX_E_LIMIT);
	}
}
END_TEST

/*
 * Whatever a stream holds, it ends in 0 or an error, and nothing appears beside the workspace:
 * a good stream with some bytes changed, cut or doubled, many times, from a fixed seed.
 */
START_TEST(test_random_damage)
{
	auto_close int good = new_stream();
	auto_free unsigned char *whole = NULL;
	uint64_t seed = 0x9e3779b97f4a7c15u;
	struct stat st;
	size_t len;
	int accepted = 0;

	unlinkat(src_fd, "sub/deep/data", 0);
	put_file(src_fd, "sub/deep/data", 0644, data, 300);
	ck_assert_int_eq(nsbox_files_send_dir(good, src_fd, NULL, NULL), 0);
	ck_assert_int_eq(nsbox_files_end(good, NULL), 0);
	fstat(good, &st);
	len = (size_t)st.st_size;
	whole = malloc(len);
	rewind_fd(good);
	ck_assert_int_eq(read_full(good, whole, len), 0);

	for (int round = 0; round < 3000; round++) {
		auto_close int fd = new_stream();
		auto_free unsigned char *copy = malloc(len);
		size_t keep = len;
		int a, b;

		memcpy(copy, whole, len);
		for (int i = 0; i < 1 + round % 4; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			copy[(seed >> 33) % len] ^= (unsigned char)(1u << ((seed >> 20) & 7));
		}
		if (round % 5 == 0)
			keep = (seed >> 40) % len;
		ck_assert_int_eq(write_full(fd, copy, keep), 0);
		rewind_fd(fd);
		a = files_child_unpack(fd, root_fd, NULL, "/workspace", NULL);
		rewind_fd(fd);
		b = feed_all(fd, 1 + (size_t)round % 61, NULL);
		/* What the one takes as well-formed the other does, too; the child has more to say
		 * about where files go. Bytes behind an early END are the reader's alone. */
		if (b == 0)
			accepted++;
		ck_assert(a <= 0);
	}
	ck_assert_int_gt(accepted, 0); /* changes of content alone */
	ck_assert(!is_there(root_fd, "run.sh") && !is_there(root_fd, "sub"));
}
END_TEST

/* ------------------------------------------------------------------ receiving */

struct heard {
	unsigned files, notes;
	char last[64];
};

static void hear(void *ctx, int kind, const char *path, uint64_t size, const char *note)
{
	struct heard *h = ctx;

	if (kind == NSBOX_FRAME_NOTE)
		h->notes++;
	else
		h->files++;
	snprintf(h->last, sizeof(h->last), "%s %s", path, note ? note : "");
}

START_TEST(test_receive)
{
	static const struct raw set_id = F(NSBOX_FRAME_FILE, "d/prog", "x", .mode = 06755);
	static const struct raw private = F(NSBOX_FRAME_FILE, "secret", "y", .mode = 0600);
	static const struct raw note = F(NSBOX_FRAME_NOTE, "big", "too\nlarge");
	struct heard h = { 0 };
	auto_close int fd = new_stream();

	ck_assert_int_eq(symlinkat("/etc/passwd", dst_fd, "secret"), 0);
	put_raw(fd, &set_id, 1);
	put_raw(fd, &private, 1);
	put_raw(fd, &note, 9);
	put_raw(fd, &end_frame, 0);
	rewind_fd(fd);
	ck_assert_int_eq(nsbox_files_receive_dir(fd, dst_fd, NULL, hear, &h, NULL), 0);
	check_file(dst_fd, "d/prog", 0755, "x", 1);
	check_file(dst_fd, "secret", 0644, "y", 1); /* replaced, not written through */
	ck_assert_uint_eq(h.files, 2);
	ck_assert_uint_eq(h.notes, 1);
	ck_assert_str_eq(h.last, "big too?large");
}
END_TEST

START_TEST(test_receive_refuses)
{
	static const struct raw link = F(NSBOX_FRAME_SYMLINK, "l", "/etc");
	static const struct raw base = F(NSBOX_FRAME_BASE, "/tmp", "");
	static const struct raw through = F(NSBOX_FRAME_FILE, "way/x", "y");
	const struct raw *bad[] = { &link, &base, &through };

	ck_assert_int_eq(symlinkat("..", dst_fd, "way"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		auto_close int fd = hostile_stream(bad[i]);

		ck_assert_int_lt(nsbox_files_receive_dir(fd, dst_fd, NULL, NULL, NULL, NULL), 0);
		ck_assert(!is_there(dst_fd, "../x") && !is_there(dst_fd, "l"));
	}
	auto_close int twin = hostile_stream(NULL);

	ck_assert_int_eq(nsbox_files_receive_dir(twin, dst_fd, NULL, NULL, NULL, NULL), 0);
}
END_TEST

START_TEST(test_receive_keeps_old)
{
	auto_close int fd = hostile_stream(NULL);
	auto_free char *part = NULL;

	put_file(dst_fd, "good", 0644, "old", 3);
	ck_assert_int_eq(ftruncate(fd, sizeof(struct nsbox_frame) + 4 + 3), 0);
	ck_assert_int_lt(nsbox_files_receive_dir(fd, dst_fd, NULL, NULL, NULL, NULL), 0);
	check_file(dst_fd, "good", 0644, "old", 3);
	ck_assert_int_gt(asprintf(&part, ".nsbox-part.%d", getpid()), 0);
	ck_assert(!is_there(dst_fd, part));
}
END_TEST

/* ------------------------------------------------------------------ globs */

static const struct {
	const char *glob, *path;
	bool match, below; /* below: path taken as a directory */
} globs[] = {
	/* clang-format off */
	{ "a", "a", true, false },		{ "a", "b", false, false },
	{ "*", "a", true, false },		{ "*", "a/b", false, false },
	{ "*", ".a", true, false },		{ "*.txt", "a.txt", true, false },
	{ "*.txt", "a.txt.", false, false },	{ "*.txt", ".txt", true, false },
	{ "a?c", "abc", true, false },		{ "a?c", "a/c", false, false },
	{ "a?c", "ac", false, false },		{ "[a-c]x", "bx", true, false },
	{ "[a-c]x", "dx", false, false },	{ "[!a-c]x", "dx", true, false },
	{ "[^a-c]x", "bx", false, false },	{ "[]]x", "]x", true, false },
	{ "[a-]x", "-x", true, false },		{ "[a", "[a", true, false },
	{ "a[/]b", "a/b", false, false },	{ "out/*", "out/a", true, false },
	{ "out/*", "out", false, true },	{ "out/*", "other", false, false },
	{ "out/*", "out/a/b", false, false },	{ "out/*/x", "out/a", false, true },
	{ "**", "a", true, true },		{ "**", "a/b/c", true, true },
	{ "out/**", "out/a/b", true, true },	{ "out/**", "out", false, true },
	{ "**/x", "x", true, true },		{ "**/x", "a/b/x", true, true },
	{ "**/x", "a/b/y", false, true },	{ "a/**/b", "a/b", true, true },
	{ "a/**/b", "a/x/y/b", true, true },	{ "a/**/b", "b/x/b", false, false },
	{ "a/**/b/**/c", "a/b/c", true, true },	{ "a/**/b/**/c", "a/c/b", false, true },
	{ "**/**", "a", true, true },		{ "**/*.py", "a/b.c/d.py", true, true },
	{ "a**", "abc", true, false },		{ "a**", "a/b", false, false },
	{ "*a*b*c", "xaybzc", true, false },	{ "*a*b*c", "xaybz", false, false },
	{ "", "a", false, false },		{ "../x", "x", false, false },
	{ "/x", "x", false, false },		{ "\xe4\xb8\xad*", "\xe4\xb8\xad.txt", true, false },
	/* clang-format on */
};

START_TEST(test_glob)
{
	ck_assert_msg(files_glob_match(globs[_i].glob, globs[_i].path) == globs[_i].match, "%s %s",
		      globs[_i].glob, globs[_i].path);
	ck_assert_msg(files_glob_may_contain(globs[_i].glob, globs[_i].path) == globs[_i].below,
		      "below: %s %s", globs[_i].glob, globs[_i].path);
}
END_TEST

START_TEST(test_glob_is_not_exponential)
{
	char glob[256], name[256], deep[4096];
	uint64_t begin = monotonic_us();

	for (size_t i = 0; i < 250; i += 2)
		memcpy(glob + i, "*a", 2);
	strcpy(glob + 250, "b");
	memset(name, 'a', 255);
	name[255] = '\0';
	ck_assert(!files_glob_match(glob, name));
	for (size_t i = 0; i + 3 < 250; i += 3)
		memcpy(glob + i, "**/", 3);
	strcpy(glob + 249, "b");
	for (size_t i = 0; i + 2 < sizeof(deep); i += 2)
		memcpy(deep + i, "a/", 2);
	strcpy(deep + 4090, "c");
	ck_assert(!files_glob_match(glob, deep));
	ck_assert_uint_lt(monotonic_us() - begin, 2000000);
}
END_TEST

/* ------------------------------------------------------------------ collecting */

static int collect(const struct files_rule *rules, unsigned n, const struct nsbox_files_limits *lim,
		   struct heard *h, struct nsbox_error *err)
{
	auto_close int fd = new_stream();
	int r = files_child_collect(root_fd, "/workspace", rules, n, fd, lim, err);

	rewind_fd(fd);
	if (r == 0)
		ck_assert_int_eq(nsbox_files_receive_dir(fd, dst_fd, NULL, hear, h, err), 0);
	return r;
}

START_TEST(test_collect)
{
	struct files_rule rules[] = { { "out/*.txt", 10, 2 }, { "**/data", 0, 0 } };
	struct heard h = { 0 };
	auto_close int ws = openat(root_fd, "workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	mkdirat(ws, "out", 0755);
	mkdirat(ws, "a", 0755);
	put_file(ws, "out/1.txt", 0644, "one", 3);
	put_file(ws, "out/big.txt", 0644, "12345678901", 11);
	put_file(ws, "out/other", 0644, "x", 1);
	put_file(ws, "a/data", 0700, data, sizeof(data));
	ck_assert_int_eq(symlinkat("/etc/passwd", ws, "out/link.txt"), 0);
	ck_assert_int_eq(symlinkat("..", ws, "a/up"), 0);
	mkfifoat(ws, "out/fifo.txt", 0666);
	ck_assert_int_eq(collect(rules, 2, NULL, &h, NULL), 0);
	check_file(dst_fd, "out/1.txt", 0644, "one", 3);
	check_file(dst_fd, "a/data", 0755, data, sizeof(data));
	ck_assert_uint_eq(h.files, 2);
	ck_assert_uint_eq(h.notes, 3); /* big, link, fifo */
	ck_assert(!is_there(dst_fd, "out/big.txt") && !is_there(dst_fd, "out/link.txt"));
	ck_assert(!is_there(dst_fd, "out/other"));
}
END_TEST

START_TEST(test_collect_limits)
{
	struct files_rule per_rule = { "*", 0, 3 }, all = { "*", 0, 0 };
	struct nsbox_files_limits frames = { .total_bytes = 100, .files = 4 };
	struct nsbox_files_limits bytes = { .total_bytes = 8, .files = 100 };
	auto_close int ws = openat(root_fd, "workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct heard h = { 0 };

	for (int i = 0; i < 10; i++) {
		char name[8];

		snprintf(name, sizeof(name), "f%d", i);
		put_file(ws, name, 0644, "xy", 2);
	}
	ck_assert_int_eq(collect(&all, 1, NULL, &h, NULL), 0);
	ck_assert_uint_eq(h.files, 10);
	ck_assert_uint_eq(h.notes, 0);
	h = (struct heard){ 0 };
	ck_assert_int_eq(collect(&per_rule, 1, NULL, &h, NULL), 0);
	ck_assert_uint_eq(h.files, 3);
	ck_assert_uint_eq(h.notes, 7);
	h = (struct heard){ 0 };
	ck_assert_int_eq(collect(&all, 1, &frames, &h, NULL), 0);
	ck_assert_uint_eq(h.files, 3);
	ck_assert_uint_eq(h.notes, 1);
	h = (struct heard){ 0 };
	ck_assert_int_eq(collect(&all, 1, &bytes, &h, NULL), 0);
	ck_assert_uint_eq(h.files, 4);
	ck_assert_uint_eq(h.notes, 6);
}
END_TEST

START_TEST(test_collect_deep)
{
	struct files_rule rule = { "**/leaf", 0, 0 };
	auto_close int at = openat(root_fd, "workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct heard h = { 0 };

	for (int i = 0; i < 200; i++) {
		int next;

		put_file(at, "leaf", 0644, "x", 1);
		next = open_dir_at(at, "d");
		close_fd(&at);
		at = next;
	}
	ck_assert_int_eq(collect(&rule, 1, NULL, &h, NULL), 0);
	ck_assert_uint_eq(h.files, 128);
	ck_assert_uint_eq(h.notes, 1);
}
END_TEST

START_TEST(test_collect_base)
{
	struct files_rule rule = { "*", 0, 0 };
	struct nsbox_error err = { 0 };
	auto_close int fd = new_stream();

	ck_assert_int_eq(symlinkat("../etc", root_fd, "workspace/l"), 0);
	put_file(root_fd, "etc/file", 0644, "x", 1);
	ck_assert_int_eq(files_child_collect(root_fd, "/workspace/l", &rule, 1, fd, NULL, &err),
			 -ELOOP);
	rewind_fd(fd);
	/* the stream says so as well */
	ck_assert_int_lt(feed_all(fd, 100, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "/workspace/l"));
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	rewind_fd(fd);
	ck_assert_int_eq(files_child_collect(root_fd, "/etc", &rule, 1, fd, NULL, &err), 0);
	rewind_fd(fd);
	ck_assert_int_eq(feed_all(fd, 100, &err), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("files");
	TCase *tc = tcase_create("files");
	SRunner *sr = srunner_create(s);
	int failed;

	umask(022);
	suite_add_tcase(s, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_send_and_unpack);
	tcase_add_test(tc, test_send_is_stable);
	tcase_add_test(tc, test_send_refuses);
	tcase_add_loop_test(tc, test_send_link, 0, ARRAY_SIZE(links));
	tcase_add_loop_test(tc, test_path, 0, ARRAY_SIZE(paths));
	tcase_add_test(tc, test_path_lengths);
	tcase_add_loop_test(tc, test_hostile, 0, ARRAY_SIZE(hostile));
	tcase_add_loop_test(tc, test_hostile_reader, 0, ARRAY_SIZE(hostile));
	tcase_add_test(tc, test_truncated);
	tcase_add_test(tc, test_through_links);
	tcase_add_test(tc, test_base_is_a_link);
	tcase_add_test(tc, test_count_limit);
	tcase_add_test(tc, test_random_damage);
	tcase_add_test(tc, test_receive);
	tcase_add_test(tc, test_receive_refuses);
	tcase_add_test(tc, test_receive_keeps_old);
	tcase_add_loop_test(tc, test_glob, 0, ARRAY_SIZE(globs));
	tcase_add_test(tc, test_glob_is_not_exponential);
	tcase_add_test(tc, test_collect);
	tcase_add_test(tc, test_collect_limits);
	tcase_add_test(tc, test_collect_deep);
	tcase_add_test(tc, test_collect_base);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
