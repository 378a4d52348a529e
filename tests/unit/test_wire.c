/* SPDX-License-Identifier: Apache-2.0 */
/* Packets between front and spawn: what gets through, and what ends the connection. */
#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/release.h"
#include "daemon/common/wire.h"
#include "nsbox/util.h"

static int sock[2];

static void setup(void)
{
	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sock), 0);
}

static void teardown(void)
{
	close_fd(&sock[0]);
	close_fd(&sock[1]);
}

static struct wire_request request(uint32_t kind, unsigned fds)
{
	return (struct wire_request){ .magic = WIRE_MAGIC,
				      .kind = kind,
				      .sandbox = 7,
				      .exec = kind == WIRE_EXEC || kind == WIRE_BEGIN ? 9 : 0,
				      .fds = fds };
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Send q with n descriptors (copies of one end of a pipe) and say what the receiver makes of it. */
static int deliver(const struct wire_request *q, size_t size, unsigned n, struct nsbox_error *err)
{
	int pipes[2], out[WIRE_FDS_MAX], in[WIRE_FDS_MAX], r, before;
	struct wire_request got;
	unsigned count = 99;

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		out[i] = pipes[1];
	ck_assert_int_eq(wire_send(sock[0], q, size, out, n, NULL), 0);
	before = open_fds();
	r = wire_recv_request(sock[1], &got, in, &count, err);
	if (r == 1) {
		ck_assert_uint_eq(count, n);
		ck_assert_int_eq(memcmp(&got, q, sizeof(got)), 0);
		for (unsigned i = 0; i < n; i++) {
			ck_assert_int_eq(fcntl(in[i], F_GETFD), FD_CLOEXEC);
			ck_assert_int_eq(write(in[i], "x", 1), 1);
		}
		wire_close_fds(in, count);
	} else {
		ck_assert_uint_eq(count, 0);
	}
	/* Refused or taken, no descriptor is lost. */
	ck_assert_int_eq(open_fds(), before);
	close(pipes[0]);
	close(pipes[1]);
	return r;
}

START_TEST(test_good)
{
	static const struct {
		uint32_t kind, arg;
		unsigned fds;
	} rows[] = {
		{ WIRE_NEW, 0, 1 },
		{ WIRE_NEW, WIRE_NEW_TRACK, 1 },
		{ WIRE_NEW, WIRE_NEW_FILES, 2 },
		{ WIRE_NEW, WIRE_NEW_UPPER | WIRE_NEW_TRACK, 2 },
		{ WIRE_NEW, WIRE_NEW_ALL, 3 },
		{ WIRE_UPPER, NSBOX_UPPER_WHOLE, 1 },
		{ WIRE_EXEC, 0, 1 },
		{ WIRE_EXEC, WIRE_IO_OUT | WIRE_IO_ERR, 3 },
		{ WIRE_EXEC, WIRE_IO_ALL, 7 },
		{ WIRE_FILES, 0, 1 },
		{ WIRE_FILES, WIRE_FILES_OUT, 2 },
		{ WIRE_FILES, WIRE_FILES_ALL, 3 },
		{ WIRE_FILES_CANCEL, 0, 0 },
		{ WIRE_BEGIN, 0, 0 },
		{ WIRE_KILL, NSBOX_CAUSE_CANCELLED, 0 },
		{ WIRE_COLLECT, 0, 1 },
		{ WIRE_END, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct wire_request q = request(rows[i].kind, rows[i].fds);

		q.arg = rows[i].arg;
		q.arg2 = 9;
		ck_assert_int_eq(deliver(&q, sizeof(q), rows[i].fds, NULL), 1);
	}
}
END_TEST

static void bad_magic(struct wire_request *q)
{
	q->magic++;
}
static void bad_kind(struct wire_request *q)
{
	q->kind = WIRE_EVENT;
}
static void kind_zero(struct wire_request *q)
{
	q->kind = 0;
}
static void kind_huge(struct wire_request *q)
{
	q->kind = 1u << 31;
}
static void no_number(struct wire_request *q)
{
	q->sandbox = 0;
}
static void wrong_count(struct wire_request *q)
{
	q->fds = 2;
}
static void long_image(struct wire_request *q)
{
	memset(q->image, 'a', sizeof(q->image));
}
static void path_image(struct wire_request *q)
{
	strcpy(q->image, "../etc");
}
static void up_image(struct wire_request *q)
{
	strcpy(q->image, "a/../etc");
}
static void long_digest(struct wire_request *q)
{
	memset(q->image_digest, 'a', sizeof(q->image_digest));
}
static void new_without_mask(struct wire_request *q)
{
	q->arg = WIRE_NEW_UPPER;
}
static void new_beyond_mask(struct wire_request *q)
{
	q->arg = WIRE_NEW_ALL + 1;
}
static void upper_without_number(struct wire_request *q)
{
	q->kind = WIRE_UPPER;
}
static void upper_of_no_form(struct wire_request *q)
{
	q->kind = WIRE_UPPER;
	q->arg = NSBOX_UPPER_LAYER + 1;
	q->arg2 = 9;
}
static void long_base(struct wire_request *q)
{
	memset(q->base, '/', sizeof(q->base));
}
static void many_outputs(struct wire_request *q)
{
	q->outputs = WIRE_OUTPUTS_MAX + 1;
}
static void exec_without_mask(struct wire_request *q)
{
	q->kind = WIRE_EXEC;
	q->exec = 9;
	q->arg = WIRE_IO_OUT;
}
static void exec_without_number(struct wire_request *q)
{
	q->kind = WIRE_EXEC;
}
static void exec_beyond_mask(struct wire_request *q)
{
	q->kind = WIRE_EXEC;
	q->exec = 9;
	q->arg = WIRE_IO_ALL + 1;
}
static void kill_with_fd(struct wire_request *q)
{
	q->kind = WIRE_KILL;
}
static void files_without_number(struct wire_request *q)
{
	q->kind = WIRE_FILES;
}
static void files_without_mask(struct wire_request *q)
{
	q->kind = WIRE_FILES;
	q->arg = WIRE_FILES_OUT;
	q->arg2 = 9;
}
static void long_glob(struct wire_request *q)
{
	q->outputs = 1;
	memset(q->output[0].glob, 'a', sizeof(q->output[0].glob));
}

static void (*const spoil[])(struct wire_request *q) = {
	bad_magic,
	bad_kind,
	kind_zero,
	kind_huge,
	no_number,
	wrong_count,
	long_image,
	path_image,
	up_image,
	long_digest,
	new_without_mask,
	new_beyond_mask,
	upper_without_number,
	upper_of_no_form,
	long_base,
	many_outputs,
	exec_without_mask,
	exec_without_number,
	exec_beyond_mask,
	kill_with_fd,
	long_glob,
	files_without_number,
	files_without_mask,
};

START_TEST(test_bad)
{
	struct wire_request q = request(WIRE_NEW, 1);
	struct nsbox_error err = { 0 };

	ck_assert_int_eq(deliver(&q, sizeof(q), 1, &err), 1);
	spoil[_i](&q);
	ck_assert_int_eq(deliver(&q, sizeof(q), 1, &err), -EPROTO);
	ck_assert_int_eq(err.code, NSBOX_E_PROTOCOL);
}
END_TEST

START_TEST(test_size)
{
	struct {
		struct wire_request q;
		char more[8];
	} long_one = { .q = request(WIRE_NEW, 1) };

	ck_assert_int_eq(deliver(&long_one.q, sizeof(long_one.q) - 1, 1, NULL), -EPROTO);
	ck_assert_int_eq(deliver(&long_one.q, sizeof(long_one.q) + 1, 1, NULL), -EPROTO);
	ck_assert_int_eq(deliver(&long_one.q, 1, 1, NULL), -EPROTO);
}
END_TEST

START_TEST(test_too_many_descriptors)
{
	char control[CMSG_SPACE(sizeof(int) * 20)] = { 0 };
	struct wire_request q = request(WIRE_NEW, 1), got;
	struct iovec iov = { &q, sizeof(q) };
	struct msghdr hdr = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&hdr);
	int fds[WIRE_FDS_MAX], before = open_fds();
	unsigned n;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * 20);
	for (int i = 0; i < 20; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &sock[0], sizeof(int));
	ck_assert_int_eq(sendmsg(sock[0], &hdr, 0), sizeof(q));
	ck_assert_int_eq(wire_recv_request(sock[1], &got, fds, &n, NULL), -EPROTO);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(test_ends)
{
	struct wire_request q;
	int fds[WIRE_FDS_MAX];
	unsigned n;

	ck_assert_int_eq(wire_recv_request(sock[1], &q, fds, &n, NULL), -EAGAIN);
	close_fd(&sock[0]);
	ck_assert_int_eq(wire_recv_request(sock[1], &q, fds, &n, NULL), 0);
}
END_TEST

START_TEST(test_full_socket)
{
	struct wire_request q = request(WIRE_END, 0);
	int r = 0;

	for (int i = 0; i < 100000 && r == 0; i++)
		r = wire_send(sock[0], &q, sizeof(q), NULL, 0, NULL);
	ck_assert_int_eq(r, -EAGAIN);
}
END_TEST

START_TEST(test_event)
{
	struct wire_event e = { .magic = WIRE_MAGIC, .kind = WIRE_EVENT, .sandbox = 3 }, got;

	e.event.kind = NSBOX_EVENT_EXITED;
	memset(e.event.error.msg, 'x', sizeof(e.event.error.msg));
	ck_assert_int_eq(wire_send(sock[0], &e, sizeof(e), NULL, 0, NULL), 0);
	ck_assert_int_eq(wire_recv_event(sock[1], &got, NULL), 1);
	ck_assert_int_eq(got.event.fd, -1);
	ck_assert_uint_eq(strlen(got.event.error.msg), NSBOX_ERROR_MSG_MAX - 1);
	/* Only a terminal comes with a descriptor, and it has to. */
	e.fds = 1;
	ck_assert_int_eq(wire_send(sock[0], &e, sizeof(e), &sock[0], 1, NULL), 0);
	ck_assert_int_eq(wire_recv_event(sock[1], &got, NULL), -EPROTO);
	e.event.kind = NSBOX_EVENT_TERMINAL;
	ck_assert_int_eq(wire_send(sock[0], &e, sizeof(e), &sock[0], 1, NULL), 0);
	ck_assert_int_eq(wire_recv_event(sock[1], &got, NULL), 1);
	ck_assert_int_ge(got.event.fd, 0);
	close(got.event.fd);
	e.fds = 0;
	ck_assert_int_eq(wire_send(sock[0], &e, sizeof(e), NULL, 0, NULL), 0);
	ck_assert_int_eq(wire_recv_event(sock[1], &got, NULL), -EPROTO);
}
END_TEST

START_TEST(test_hello)
{
	struct wire_hello h = { .magic = WIRE_MAGIC, .kind = WIRE_HELLO }, got;

	strcpy(h.host.kernel, "6.1");
	ck_assert_int_eq(wire_send(sock[0], &h, sizeof(h), NULL, 0, NULL), 0);
	ck_assert_int_eq(wire_recv_hello(sock[1], &got, NULL), 1);
	ck_assert_str_eq(got.host.kernel, "6.1");
	h.kind = WIRE_EVENT;
	ck_assert_int_eq(wire_send(sock[0], &h, sizeof(h), NULL, 0, NULL), 0);
	ck_assert_int_eq(wire_recv_hello(sock[1], &got, NULL), -EPROTO);
}
END_TEST

static const struct {
	struct release says;
	size_t size;
	int want;
} releases[] = {
	{ { RELEASE_MAGIC, NSBOX_VERSION }, sizeof(struct release), 1 },
	{ { RELEASE_MAGIC, NSBOX_VERSION ".1" }, sizeof(struct release), -EPROTO },
	{ { RELEASE_MAGIC, "" }, sizeof(struct release), -EPROTO },
	{ { RELEASE_MAGIC + 1, NSBOX_VERSION }, sizeof(struct release), -EPROTO },
	{ { RELEASE_MAGIC, NSBOX_VERSION }, sizeof(struct release) - 1, -EPROTO },
	{ { WIRE_MAGIC, "" }, 8, -EPROTO }, /* of a version that did not say it */
};

START_TEST(test_release)
{
	struct nsbox_error err = { 0 };

	ck_assert_int_eq(release_recv(sock[1], "peer", &err), -EAGAIN);
	ck_assert_int_eq(wire_send(sock[0], &releases[_i].says, releases[_i].size, NULL, 0, NULL),
			 0);
	ck_assert_int_eq(release_recv(sock[1], "peer", &err), releases[_i].want);
	if (releases[_i].want < 0)
		ck_assert(strstr(err.msg, "peer") && strstr(err.msg, NSBOX_VERSION) &&
			  strstr(err.msg, "restart the service"));
	ck_assert_int_eq(release_send(sock[0], "peer", NULL), 0);
	ck_assert_int_eq(release_recv(sock[1], "peer", NULL), 1);
	close_fd(&sock[0]);
	ck_assert_int_eq(release_recv(sock[1], "peer", NULL), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("wire");
	TCase *tc = tcase_create("wire");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_good);
	tcase_add_loop_test(tc, test_bad, 0, ARRAY_SIZE(spoil));
	tcase_add_test(tc, test_size);
	tcase_add_test(tc, test_too_many_descriptors);
	tcase_add_test(tc, test_ends);
	tcase_add_test(tc, test_full_socket);
	tcase_add_test(tc, test_event);
	tcase_add_test(tc, test_hello);
	tcase_add_loop_test(tc, test_release, 0, ARRAY_SIZE(releases));
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
