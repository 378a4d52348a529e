/* SPDX-License-Identifier: Apache-2.0 */
/* The packets between the owner, init and payload: whole or not at all, and never lost. */
#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "nsbox/control.h"
#include "nsbox/util.h"

static int pair[2];

static void set_up(void)
{
	ck_assert_int_eq(ctl_pair(pair), 0);
}

static void tear_down(void)
{
	close_fd(&pair[0]);
	close_fd(&pair[1]);
}

static void say(int sock, uint32_t id)
{
	const struct ctl_report rep = { .magic = CTL_MAGIC, .kind = CTL_READY, .id = id };

	ck_assert_int_eq(ctl_send(sock, &rep, sizeof(rep), NULL, 0), 0);
}

static int hear(uint32_t *ret_id)
{
	struct ctl_report rep;
	int fd, pid, r = ctl_recv_report(pair[0], &rep, &fd, &pid);

	if (r == 0)
		*ret_id = rep.id;
	ck_assert_int_eq(fd, -1);
	return r;
}

START_TEST(in_order)
{
	uint32_t id;

	ck_assert_int_eq(hear(&id), -EAGAIN);
	say(pair[1], 7);
	say(pair[1], 8);
	ck_assert_int_eq(hear(&id), 0);
	ck_assert_uint_eq(id, 7);
	ck_assert_int_eq(hear(&id), 0);
	ck_assert_uint_eq(id, 8);
	close_fd(&pair[1]);
	ck_assert_int_eq(hear(&id), -EPIPE);
	ck_assert_int_eq(hear(&id), -EPIPE);
}
END_TEST

/* A peer that ends without having read what was sent to it has still said why. */
START_TEST(last_words)
{
	const struct ctl_request req = { .magic = CTL_MAGIC, .kind = CTL_EXEC };
	uint32_t id;

	ck_assert_int_eq(ctl_send(pair[0], &req, sizeof(req), NULL, 0), 0);
	say(pair[1], 7);
	close_fd(&pair[1]);
	ck_assert_int_eq(hear(&id), 0);
	ck_assert_uint_eq(id, 7);
	ck_assert_int_eq(hear(&id), -EPIPE);
}
END_TEST

START_TEST(other_sizes)
{
	struct ctl_report rep = { .magic = CTL_MAGIC };
	char large[sizeof(rep) + 8] = { 0 };
	uint32_t id;

	memcpy(large, &rep, sizeof(rep));
	ck_assert_int_eq(ctl_send(pair[1], large, sizeof(large), NULL, 0), 0);
	ck_assert_int_eq(hear(&id), -EBADMSG);
	ck_assert_int_eq(ctl_send(pair[1], &rep, sizeof(rep) - 1, NULL, 0), 0);
	ck_assert_int_eq(hear(&id), -EBADMSG);
	rep.magic++;
	ck_assert_int_eq(ctl_send(pair[1], &rep, sizeof(rep), NULL, 0), 0);
	ck_assert_int_eq(hear(&id), -EBADMSG);
	say(pair[1], 1);
	ck_assert_int_eq(hear(&id), 0);
}
END_TEST

/* A message is text for people, wherever it comes from: it ends. */
START_TEST(message_ends)
{
	struct ctl_report rep = { .magic = CTL_MAGIC };
	int fd, pid;

	memset(rep.error.msg, 'x', sizeof(rep.error.msg));
	ck_assert_int_eq(ctl_send(pair[1], &rep, sizeof(rep), NULL, 0), 0);
	ck_assert_int_eq(ctl_recv_report(pair[0], &rep, &fd, &pid), 0);
	ck_assert_uint_eq(strlen(rep.error.msg), sizeof(rep.error.msg) - 1);
}
END_TEST

static int lowest_free(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

/* As many as there is room for are taken, close-on-exec; no excess one stays open. */
START_TEST(descriptors)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fds[CTL_FDS_MAX + 1], got[CTL_FDS_MAX];
	struct ctl_request req = { .magic = CTL_MAGIC };
	unsigned n;
	int before;

	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = null;
	before = lowest_free();
	ck_assert_int_eq(ctl_send(pair[0], &req, sizeof(req), fds, CTL_FDS_MAX + 1), -EINVAL);
	for (unsigned room = 0; room <= CTL_FDS_MAX; room++) {
		ck_assert_int_eq(ctl_send(pair[0], &req, sizeof(req), fds, CTL_FDS_MAX), 0);
		n = room;
		ck_assert_int_eq(ctl_recv(pair[1], &req, sizeof(req), got, &n, 0), 0);
		ck_assert_uint_eq(n, room);
		for (unsigned i = 0; i < n; i++) {
			ck_assert_int_eq(fcntl(got[i], F_GETFD), FD_CLOEXEC);
			close(got[i]);
		}
		ck_assert_int_eq(lowest_free(), before);
	}
	/* Of a packet that is refused none stays either. */
	ck_assert_int_eq(ctl_send(pair[0], &req, 12, fds, CTL_FDS_MAX), 0);
	n = CTL_FDS_MAX;
	ck_assert_int_eq(ctl_recv(pair[1], &req, sizeof(req), got, &n, 0), -EBADMSG);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(lowest_free(), before);
	close(null);
}
END_TEST

/* The receiver's kernel says who sent it. */
START_TEST(credentials)
{
	struct ctl_report rep;
	int on = 1, fd, pid;

	ck_assert_int_eq(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	ck_assert_int_eq(ctl_send_hello(pair[1]), 0);
	ck_assert_int_eq(ctl_recv_report(pair[0], &rep, &fd, &pid), 0);
	ck_assert_uint_eq(rep.kind, CTL_HELLO);
	ck_assert_int_eq(pid, getpid());
}
END_TEST

int main(void)
{
	Suite *s = suite_create("control");
	TCase *tc = tcase_create("control");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, in_order);
	tcase_add_test(tc, last_words);
	tcase_add_test(tc, other_sizes);
	tcase_add_test(tc, message_ends);
	tcase_add_test(tc, descriptors);
	tcase_add_test(tc, credentials);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
