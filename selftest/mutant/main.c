/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-mutant PROBE LAYERS PROFILE MANIFEST TIER: run one probe in a sandbox without some layers.
 *
 * It is linked with a build of nsbox/ that can leave layers out (nsbox/weaken.h), and runs nothing but
 * nsbox-probe. A sandbox without a namespace of its own would share it with the host, so a stand-in is
 * put between: namespaces in which the owner is an ordinary user, with the places that are written to
 * covered, decoys of its own, and a link that leads nowhere. Verdict and exit status are the probe's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "nsbox/util.h"
#include "nsbox/weaken.h"
#include "selftest/selftest.h"

#define OWNER  1000  /* inside the stand-in: the payload's number, which a single id wants */
#define NOBODY 65534 /* outside, where root starts us */

struct job {
	const struct probe_row *row;
	struct box_options box;
	int probe_fd, out;
	int tier;
	bool has_link;
};

static _Noreturn void give_up(const struct job *j, const char *what)
{
	dprintf(j->out, "SKIP: the stand-in for a host: %s: %s\n", what, strerror(errno));
	_exit(2);
}

/* ------------------------------------------------------------------ the stand-in */

static void cover(const struct job *j)
{
	static const char *const places[] = { "/tmp", "/var/tmp", "/home", "/run", "/dev/shm" };

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		give_up(j, "private mounts");
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (mount("tmpfs", places[i], "tmpfs", 0, "mode=0755") < 0 && errno != ENOENT)
			give_up(j, places[i]);
	/* What a run without an upper layer of its own would share with the next. */
	if (mkdir("/home/sandbox", 0777) < 0 && errno != ENOENT)
		give_up(j, "/home/sandbox");
	if (mount("proc", "/proc", "proc", 0, NULL) < 0)
		give_up(j, "a /proc of its own");
}

static bool add_link(int nl, const char *kind)
{
	char buf[512] __attribute__((aligned(8))) = { 0 };
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct ifinfomsg *info;
	struct nlattr *nest;

	h->nlmsg_type = RTM_NEWLINK;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
	info = mnl_nlmsg_put_extra_header(h, sizeof(*info));
	info->ifi_family = AF_UNSPEC;
	mnl_attr_put_strz(h, IFLA_IFNAME, "out0");
	nest = mnl_attr_nest_start(h, IFLA_LINKINFO);
	mnl_attr_put_strz(h, IFLA_INFO_KIND, kind);
	mnl_attr_nest_end(h, nest);
	if (send(nl, buf, h->nlmsg_len, 0) < 0 || recv(nl, buf, sizeof(buf), 0) < 0)
		return false;
	h = (struct nlmsghdr *)buf;
	return h->nlmsg_type == NLMSG_ERROR &&
	       ((struct nlmsgerr *)mnl_nlmsg_get_payload(h))->error == 0;
}

static void set_address(struct sockaddr *sa, const char *address)
{
	struct sockaddr_in *in = (struct sockaddr_in *)sa;

	in->sin_family = AF_INET;
	inet_pton(AF_INET, address, &in->sin_addr);
}

/* An interface with a way to everywhere, behind which nobody is. */
static bool make_way_out(void)
{
	static const char *const kinds[] = { "dummy", "ifb", "bridge", "veth" };
	struct ifreq req = { .ifr_name = "out0" }, up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	struct rtentry route = { .rt_flags = RTF_UP, .rt_dev = req.ifr_name };
	auto_close int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool made = false;

	ioctl(fd, SIOCSIFFLAGS, &up);
	for (size_t i = 0; !made && i < ARRAY_SIZE(kinds); i++)
		made = add_link(nl, kinds[i]);
	if (!made)
		return false;
	set_address(&req.ifr_addr, "192.0.2.77");
	if (ioctl(fd, SIOCSIFADDR, &req) < 0)
		return false;
	req.ifr_flags = IFF_UP;
	set_address(&route.rt_dst, "0.0.0.0");
	set_address(&route.rt_genmask, "0.0.0.0");
	return ioctl(fd, SIOCSIFFLAGS, &req) == 0 && ioctl(fd, SIOCADDRT, &route) == 0;
}

static void become_owner(const struct job *j)
{
	if (syscall(SYS_setresgid, OWNER, OWNER, OWNER) < 0 ||
	    syscall(SYS_setresuid, OWNER, OWNER, OWNER) < 0)
		give_up(j, "an ordinary user");
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* the sandbox's maps are written through /proc */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

/*
 * As an ordinary user has them, none: the host is looked at so. Where the sandbox has no user namespace
 * of its own its set-up needs ours, later.
 */
static void use_capabilities(const struct job *j, bool on)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (left_out(USER) && syscall(SYS_capget, &head, data) < 0)
		give_up(j, "capabilities");
	for (int i = 0; i < 2; i++)
		data[i].effective = on ? data[i].permitted : 0;
	if (syscall(SYS_capset, &head, data) < 0)
		give_up(j, "capabilities");
}

/* ------------------------------------------------------------------ the run */

static int run(struct job *j, struct ending *ret, struct nsbox_error *err)
{
	struct facts f;
	struct box b = { .files = -1 };
	int r = nsbox_host_probe(&b.host, err);

	if (r == 0)
		r = box_open(&j->box, j->tier, j->probe_fd, &b, err);
	if (r == 0)
		r = facts_init(&f, &b.host, NULL, err);
	if (r < 0)
		return r;
	if (!left_out(NFTABLES))
		facts_add(&f, "filter", "1");
	use_capabilities(j, true);
	/* Nothing is taken down: all of it goes with the stand-in. */
	box_run(&b, j->row, &f, j->tier, ret);
	return 0;
}

static _Noreturn void standin_init(struct job *j)
{
	static const int status[V_MAX] = {
		[V_HELD] = 0, [V_ESCAPED] = 1, [V_NA] = 2, [V_BROKEN] = 3
	};
	struct nsbox_error err = { 0 };
	struct ending e;
	struct verdict v;

	become_owner(j);
	cover(j);
	j->has_link = make_way_out();
	if (!j->has_link && !strcmp(j->row->name, "G04_special"))
		give_up(j, "no virtual link can be made");
	use_capabilities(j, false);
	setenv("NSBOX_STATE_DIR", "/tmp/state", 1);
	unsetenv("XDG_RUNTIME_DIR");
	unsetenv("TMPDIR");
	if (run(j, &e, &err) < 0) {
		dprintf(j->out, "SKIP: %s\n", err.msg);
		_exit(2);
	}
	v = judge_ending(j->row, &e);
	dprintf(j->out, "%s%s: %s\n",
		v.kind == V_HELD      ? "HELD "
		: v.kind == V_ESCAPED ? "ESCAPED"
		: v.kind == V_NA      ? "SKIP"
				      : "BROKEN",
		v.layer, v.text);
	_exit(status[v.kind]);
}

static int write_maps(pid_t pid)
{
	bool root = geteuid() == 0;
	char path[64], map[64];

	nsbox_format(path, sizeof(path), "/proc/%d/setgroups", (int)pid);
	write_small_file(AT_FDCWD, path, "deny");
	for (int gid = 1; gid >= 0; gid--) {
		unsigned outside = root ? NOBODY : gid ? getegid() : geteuid();

		nsbox_format(path, sizeof(path), "/proc/%d/%s", (int)pid,
			     gid ? "gid_map" : "uid_map");
		nsbox_format(map, sizeof(map), "%d %u 1", OWNER, outside);
		if (write_small_file(AT_FDCWD, path, map) < 0)
			return -errno;
	}
	return 0;
}

static _Noreturn void standin(struct job *j, int ready, int go)
{
	int status = 0;
	char byte = 0;
	pid_t pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (geteuid() == 0)
		setgroups(0, NULL);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
		    CLONE_NEWUTS) < 0)
		give_up(j, "namespaces");
	if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1)
		_exit(125);
	pid = fork();
	if (pid == 0)
		standin_init(j);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 125);
}

static int in_standin(struct job *j)
{
	int ready[2], go[2], status = 0;
	char byte = 0;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0)
		return 125;
	pid = fork();
	if (pid == 0) {
		close(ready[0]);
		close(go[1]);
		standin(j, ready[1], go[0]);
	}
	close(ready[1]);
	close(go[0]);
	if (read(ready[0], &byte, 1) == 1 && write_maps(pid) == 0 && write(go[1], &byte, 1) != 1)
		return 125;
	close(go[1]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}

/* ------------------------------------------------------------------ main */

static int parse_layers(char *text, uint32_t *ret)
{
	for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
		int layer = nsbox_layer_by_name(name);

		if (layer < 0 && strcmp(name, "none") != 0)
			return -EINVAL;
		if (layer >= 0)
			*ret |= NSBOX_LAYER_BIT(layer);
	}
	return 0;
}

/* Beside us: in a build tree and where both are installed. */
static int open_probe(void)
{
	char path[4096 + 16];
	ssize_t n = readlink("/proc/self/exe", path, 4096);

	if (n <= 0)
		return -1;
	path[n] = '\0';
	nsbox_format(strrchr(path, '/') + 1, 16, "nsbox-probe");
	return open(path, O_RDONLY | O_CLOEXEC);
}

int main(int argc, char **argv)
{
	struct job j = { .out = 1, .probe_fd = open_probe() };

	if (argc != 6 || parse_layers(argv[2], &weaken_layers) < 0) {
		fprintf(stderr, "Usage: nsbox-mutant PROBE LAYERS PROFILE MANIFEST TIER\n"
				"(a part of `nsbox selftest --mutate`)\n");
		return 125;
	}
	for (size_t i = 0; i < probe_n_rows; i++)
		if (!strcmp(probe_rows[i].name, argv[1]))
			j.row = &probe_rows[i];
	j.box.profile = argv[3][0] ? argv[3] : NULL;
	j.box.manifest = argv[4][0] ? argv[4] : NULL;
	j.tier = strcmp(argv[5], nsbox_tier_name(NSBOX_TIER_PROCESS)) ? NSBOX_TIER_NAMESPACE
								      : NSBOX_TIER_PROCESS;
	if (!j.row || j.probe_fd < 0) {
		fprintf(stderr, "nsbox-mutant: no probe '%s'\n", argv[1]);
		return 125;
	}
	return in_standin(&j);
}
