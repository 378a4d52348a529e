/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files under pressure: a full disk, no inodes left, huge sparse files, very many and very deep ones,
 * odd names, attributes. Each time a clear error or the right thing, the sandbox goes on, and so does
 * its neighbour.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "nsbox/util.h"
#include "tests/support/box_kit.h"
#include "tests/support/verb_kit.h"

#define SMALL_DISK                                                                                 \
	"{\"manifestVersion\":1,\"resources\":{\"disk\":\"8Mi\",\"memory\":\"512Mi\"},"            \
	"\"timeouts\":{\"wall\":\"600s\"}}"
#define LARGE_DISK                                                                                 \
	"{\"manifestVersion\":1,\"resources\":{\"disk\":\"512Mi\",\"memory\":\"1Gi\","             \
	"\"fileSize\":"                                                                            \
	"\"8Gi\"},\"timeouts\":{\"wall\":\"600s\"}}"

static struct nsbox_plan *small, *large;
static struct nsbox_sandbox *sb;
static struct verb_answer a;

static void set_up(void)
{
	small = box_plan(SMALL_DISK, NULL);
	large = box_plan(LARGE_DISK, NULL);
}

static void tear_down(void)
{
	nsbox_sandbox_free(sb);
	sb = NULL;
	nsbox_plan_close(small);
	nsbox_plan_close(large);
}

static void start(const struct nsbox_plan *plan)
{
	sb = box_new(plan, -1);
	box_expect(sb, NSBOX_EVENT_READY);
}

static struct nsbox_event next_event(struct nsbox_sandbox *box, int ms)
{
	struct nsbox_error err = { 0 };
	struct nsbox_event ev;

	ck_assert_int_eq(nsbox_sandbox_next(box, ms * (int)box_slow(), &ev, &err), 0);
	return ev;
}

static const char *sh(const char *script)
{
	static char text[8192];
	auto_close int out = memfd_create("out", MFD_CLOEXEC);
	struct nsbox_event ev;

	box_sh(sb, script, true, out);
	do
		ev = next_event(sb, 60000);
	while (ev.kind == NSBOX_EVENT_STARTED);
	box_slurp(out, text, sizeof(text));
	ck_assert_msg(ev.kind == NSBOX_EVENT_EXITED && ev.result.exit_status == 0,
		      "'%s': event %u, status %d: %s", script, ev.kind, ev.result.exit_status,
		      text);
	return text;
}

static int act(uint32_t verb, uint32_t flags, const char *path)
{
	return verb_do(sb, verb, flags, path, &a);
}

/* ------------------------------------------------------------------ full */

/* What does not fit is an error with its remedy, nothing half-written stays, and all else works. */
START_TEST(full_disk)
{
	static char megabyte[1 << 20];

	start(small);
	ck_assert_int_eq(verb_put_text(sb, 0, "kept", "old"), 0);
	sh("dd if=/dev/zero of=fill bs=64k 2>/dev/null; dd if=/dev/zero of=rest bs=1 2>/dev/null; "
	   ":");
	memset(megabyte, 'x', sizeof(megabyte) - 1);
	ck_assert_int_eq(verb_put_text(sb, 0, "kept", megabyte), ENOSPC);
	ck_assert_int_eq(act(NSBOX_FILE_GET, 0, "kept"), 0);
	ck_assert_str_eq(a.frame[1].data, "old");
	ck_assert_str_eq(sh("ls -A"), "fill\nkept\nrest\n");
	ck_assert_int_eq(act(NSBOX_FILE_LIST, 0, "."), 0);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, 0, "fill"), 0);
	ck_assert_int_eq(verb_put_text(sb, 0, "kept", megabyte), 0);
}
END_TEST

START_TEST(full_disk_says_what_to_do)
{
	struct nsbox_file_request req = { .verb = NSBOX_FILE_PUT,
					  .path = "big",
					  .mode = 0644,
					  .length = NSBOX_FILE_SIZE_UNKNOWN };
	auto_close int zero = memfd_create("zeros", MFD_CLOEXEC);

	start(small);
	ck_assert_int_eq(ftruncate(zero, 64 << 20), 0);
	verb_ask(sb, &req, zero, &a);
	ck_assert_int_eq(a.error.errnum, ENOSPC);
	ck_assert_ptr_nonnull(strstr(a.error.msg, "resources.disk"));
	ck_assert_str_eq(sh("ls -A"), "");
}
END_TEST

START_TEST(no_inodes)
{
	start(small);
	/* The image's own files and the places count as well. */
	ck_assert_str_eq(sh("python3 -c '\n"
			    "n = 0\n"
			    "try:\n"
			    "  while True: open(\"f%d\" % n, \"w\").close(); n += 1\n"
			    "except OSError as e: print(e.errno, 3000 < n < 4097)'"),
			 "28 True\n");
	ck_assert_int_eq(verb_put_text(sb, 0, "g", "x"), ENOSPC);
	ck_assert_int_eq(act(NSBOX_FILE_MKDIR, 0, "d"), ENOSPC);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, 0, "f0"), 0);
	ck_assert_int_eq(act(NSBOX_FILE_MKDIR, 0, "d"), 0);
}
END_TEST

/* Bytes and inodes of one sandbox are no other's. */
START_TEST(neighbour)
{
	struct nsbox_sandbox *full;

	start(small);
	full = sb;
	sh("dd if=/dev/zero of=fill bs=64k 2>/dev/null; :");
	start(small);
	sh("head -c 6000000 /dev/zero >mine; mkdir d; touch d/f");
	ck_assert_int_eq(verb_put_text(sb, 0, "f", "x"), 0);
	nsbox_sandbox_free(full);
}
END_TEST

/* ------------------------------------------------------------------ huge */

START_TEST(sparse)
{
	struct nsbox_file_request req = { .verb = NSBOX_FILE_GET,
					  .path = "sparse",
					  .offset = UINT64_C(4) << 30,
					  .length = UINT64_MAX };

	start(large);
	sh("truncate -s 4G sparse; printf end >>sparse");
	ck_assert_int_eq(act(NSBOX_FILE_STAT, 0, "sparse"), 0);
	ck_assert_uint_eq(a.frame[0].info.size, (UINT64_C(4) << 30) + 3);
	verb_ask(sb, &req, -1, &a);
	ck_assert_msg(a.error.code == 0, "%s", a.error.msg);
	ck_assert_str_eq(a.frame[1].data, "end");
	ck_assert_int_ne(act(NSBOX_FILE_GET, 0, "sparse"), 0);
	ck_assert_int_eq(a.error.code, NSBOX_E_LIMIT);
	ck_assert_int_eq(act(NSBOX_FILE_DOWNLOAD, 0, "."), 0);
	ck_assert_int_eq(a.frame[0].kind, NSBOX_FRAME_NOTE);
	/* beyond what its files may be */
	ck_assert_str_eq(sh("python3 -c '\n"
			    "try: open(\"more\", \"w\").truncate(9 << 30)\n"
			    "except OSError as e: print(e.errno)'"),
			 "27\n");
}
END_TEST

/* All 4 GiB, as they come: what is sent is what the header said. An emulated processor, where this is
 * the same code for a quarter of an hour, sends a sixteenth. */
START_TEST(four_gigabytes)
{
	const uint64_t size = box_slow() > 1 ? UINT64_C(256) << 20 : UINT64_C(4) << 30;
	const struct nsbox_file_request req = { .verb = NSBOX_FILE_GET,
						.path = "sparse",
						.length = UINT64_MAX,
						.deadline_ms = 120000 * box_slow(),
						.lim = { UINT64_C(5) << 30, 100 } };
	struct nsbox_error err = { 0 };
	static char buf[1 << 20];
	char script[64];
	uint64_t got = 0;
	ssize_t n;
	int p[2];

	start(large);
	nsbox_format(script, sizeof(script), "truncate -s %llu sparse", (unsigned long long)size);
	sh(script);
	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	fcntl(p[1], F_SETPIPE_SZ, sizeof(buf));
	ck_assert_int_eq(nsbox_sandbox_files(sb, &req, 1, -1, p[1], &err), 0);
	close(p[1]);
	while ((n = read(p[0], buf, sizeof(buf))) > 0)
		got += (uint64_t)n;
	close(p[0]);
	ck_assert_uint_gt(got, size);
	ck_assert_uint_lt(got, size + 1000);
	ck_assert_int_eq(next_event(sb, 5000).error.code, 0);
}
END_TEST

START_TEST(many_files)
{
	const struct nsbox_file_request list = { .verb = NSBOX_FILE_LIST,
						 .path = "many",
						 .lim = { 64 << 20, 200000 } };
	uint64_t start_us;

	start(large);
	sh("python3 -c '\nimport os\n"
	   "for d in range(100):\n"
	   "  os.makedirs(\"many/%d\" % d)\n"
	   "  for i in range(1000): os.close(os.open(\"many/%d/%d\" % (d, i), os.O_CREAT | "
	   "os.O_WRONLY))\n'");
	verb_ask(sb, &list, -1, &a);
	ck_assert_uint_eq(a.n, 100);
	ck_assert_int_eq(act(NSBOX_FILE_LIST, NSBOX_FILE_RECURSIVE, "many"), 0);
	ck_assert_uint_eq(a.n, 20000); /* the default limit, and its last frame says so */
	ck_assert_int_eq(act(NSBOX_FILE_STAT, 0, "many"), 0);
	start_us = monotonic_us();
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, NSBOX_FILE_RECURSIVE, "many"), 0);
	ck_assert_uint_lt(monotonic_us() - start_us, UINT64_C(30000000) * box_slow());
	ck_assert_str_eq(sh("ls -A"), "");
}
END_TEST

START_TEST(deep)
{
	start(large);
	sh("python3 -c '\nimport os\n"
	   "os.mkdir(\"deep\"); os.chdir(\"deep\")\n"
	   "for i in range(3000): os.mkdir(\"d\" * 50); os.chdir(\"d\" * 50)\n"
	   "open(\"bottom\", \"w\").close()\n'");
	ck_assert_int_eq(act(NSBOX_FILE_LIST, NSBOX_FILE_RECURSIVE, "deep"), 0);
	ck_assert_uint_lt(a.n, 200); /* as far as a path reaches, then a note */
	ck_assert_int_eq(act(NSBOX_FILE_DOWNLOAD, 0, "deep"), 0);
	ck_assert_int_eq(act(NSBOX_FILE_REMOVE, NSBOX_FILE_RECURSIVE, "deep"), 0);
	ck_assert_str_eq(sh("ls -A"), "");
}
END_TEST

/* ------------------------------------------------------------------ odd */

START_TEST(odd_names)
{
	static const char *const odd[] = {
		"new\nline", "\xff\xfe\x80",  " ",   "-rf", "*", "a\tb", "\xe4\xb8\xad\xe6\x96\x87",
		"...",	     ".nsbox-part.1", "a\\b"
	};

	start(small);
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		char path[64];

		nsbox_format(path, sizeof(path), "/workspace/%s", odd[i]);
		ck_assert_int_eq(verb_put_text(sb, 0, path, odd[i]), 0);
		ck_assert_int_eq(act(NSBOX_FILE_GET, 0, path), 0);
		ck_assert_str_eq(a.frame[1].data, odd[i]);
	}
	ck_assert_int_eq(act(NSBOX_FILE_LIST, 0, "."), 0);
	ck_assert_uint_eq(a.n, ARRAY_SIZE(odd));
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
		ck_assert_ptr_nonnull(verb_find(&a, odd[i]));
	ck_assert_int_eq(act(NSBOX_FILE_DOWNLOAD, 0, "."), 0);
	ck_assert_uint_eq(a.n, ARRAY_SIZE(odd));
}
END_TEST

START_TEST(long_names)
{
	char name[300], path[5000] = "";

	start(small);
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	ck_assert_int_eq(verb_put_text(sb, 0, name, "x"), 0);
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	ck_assert_int_eq(verb_put_text(sb, 0, name, "x"), ENAMETOOLONG);
	for (int i = 0; i < 45; i++)
		nsbox_format(path + strlen(path), 102, "%0100d/", 0);
	ck_assert_int_ne(act(NSBOX_FILE_MKDIR, NSBOX_FILE_PARENTS, path), 0);
	ck_assert_int_eq(a.error.code, NSBOX_E_INVALID);
}
END_TEST

/* Attributes and set-id bits stay inside: what comes out is content, and who may execute it. */
START_TEST(attributes)
{
	char dir[] = "/tmp/pressure.XXXXXX", list[64];
	const struct nsbox_file_request req = { .verb = NSBOX_FILE_DOWNLOAD, .path = "." };
	auto_close int out = memfd_create("out", MFD_CLOEXEC), dir_fd = -1, fd = -1;
	struct nsbox_error err = { 0 };
	struct stat st;

	start(small);
	sh("python3 -c '\nimport os\n"
	   "open(\"f\", \"w\").write(\"x\")\n"
	   "try: os.setxattr(\"f\", \"user.evil\", b\"1\")\n"
	   "except OSError: pass\n"
	   "os.chmod(\"f\", 0o6755)'");
	ck_assert_int_eq(nsbox_sandbox_files(sb, &req, 1, -1, out, &err), 0);
	ck_assert_int_eq(next_event(sb, 10000).error.code, 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lseek(out, 0, SEEK_SET);
	ck_assert_int_eq(nsbox_files_receive_dir(out, dir_fd, NULL, NULL, NULL, &err), 0);
	fd = openat(dir_fd, "f", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	ck_assert_int_eq(
		flistxattr(fd, list, sizeof(list)) > 0 && memmem(list, sizeof(list), "evil", 4), 0);
	unlinkat(dir_fd, "f", 0);
	rmdir(dir);
}
END_TEST

/* Something that fills a directory while it is removed is given up in time, not chased for ever. */
START_TEST(refilled)
{
	const struct nsbox_file_request req = { .verb = NSBOX_FILE_REMOVE,
						.flags = NSBOX_FILE_RECURSIVE,
						.path = "d",
						.deadline_ms = 3000 };
	const char *const argv[] = { "python3", "-c",
				     "import os\nos.makedirs('d')\ni = 0\n"
				     "while True:\n"
				     "  i += 1\n"
				     "  try: os.mkdir('d/%d' % i)\n"
				     "  except OSError: os.makedirs('d', exist_ok=True)\n",
				     NULL };
	const struct nsbox_exec ex = { .argv = argv, .keep_rest = true };
	const struct nsbox_io io = NSBOX_IO_NONE;
	struct nsbox_error err = { 0 };
	uint64_t start_us;

	start(large);
	ck_assert_int_eq(nsbox_sandbox_exec(sb, &ex, &io, NULL, &err), 0);
	ck_assert_int_eq(next_event(sb, 10000).kind, NSBOX_EVENT_STARTED);
	start_us = monotonic_us();
	verb_ask(sb, &req, -1, &a); /* whatever comes of it */
	ck_assert_uint_lt(monotonic_us() - start_us, UINT64_C(10000000) * box_slow());
	ck_assert_int_eq(act(NSBOX_FILE_STAT, 0, "/workspace"), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pressure");
	TCase *tc = tcase_create("pressure");
	int status;

	if (!box_prepare(&status))
		return status;
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, full_disk);
	tcase_add_test(tc, full_disk_says_what_to_do);
	tcase_add_test(tc, no_inodes);
	tcase_add_test(tc, neighbour);
	tcase_add_test(tc, sparse);
	tcase_add_test(tc, four_gigabytes);
	tcase_add_test(tc, many_files);
	tcase_add_test(tc, deep);
	tcase_add_test(tc, odd_names);
	tcase_add_test(tc, long_names);
	tcase_add_test(tc, attributes);
	tcase_add_test(tc, refilled);
	suite_add_tcase(s, tc);
	return box_finish(s);
}
