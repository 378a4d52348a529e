/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of the plan and of the exec request: what policy/ writes, plan_check() judges and the
 * child (child.c, payload.c) interprets with system calls alone.
 *
 * Both are a `blob`: a header with a table of sections, then the sections, each 8-byte aligned.
 * Strings live in one section, NUL-terminated; a string reference is a byte offset into it, and
 * offset 0 is always the empty string. Nothing here holds a pointer.
 */
#ifndef NSBOX_PLAN_FORMAT_H
#define NSBOX_PLAN_FORMAT_H

#include <linux/filter.h>
#include <nsbox/layer.h>
#include <stdint.h>

#define PLAN_MAGIC   UINT32_C(0x316e6c70) /* "pln1" */
#define EXEC_MAGIC   UINT32_C(0x31636578) /* "xec1" */
#define ROOT_MAGIC   UINT32_C(0x31746f72) /* "rot1": mounts of an image, made by overlay/ */
#define VERB_MAGIC   UINT32_C(0x31627276) /* "vrb1": a request about files */
#define BLOB_VERSION 1
#define BLOB_ENV_MAX 4096 /* variables of a plan or an exec request */

typedef uint32_t str_off; /* offset into SEC_STRINGS */

enum blob_section {
	SEC_STRINGS, /* char[] */
	SEC_FIXED,   /* one struct plan_fixed or exec_fixed */
	SEC_OPS,     /* struct mount_op[], in order */
	SEC_LANDLOCK, /* struct landlock_rule[]; of a root list: more trees of the image; of an exec: struct
			 exec_narrow */
	SEC_BPF, /* struct sock_filter[]: the payload's filter; of an exec: struct exec_narrow */
	SEC_BPF_INIT, /* struct sock_filter[]: init's filter, a superset of every payload's */
	SEC_NFT,      /* netlink messages, one batch, each message but the ends with NLM_F_ACK */
	SEC_ENV,      /* str_off[]: "NAME=value"; an image's, then a plan's, then an exec's win */
	SEC_ARGV,     /* str_off[] (exec) */
	SEC_OUTPUTS,  /* struct output_rule[] */
	SEC_DATA,     /* bytes of OP_FILE and OP_TRUST */
	SEC_EGRESS,   /* rules of egress_format.h; empty: no egress */
	SEC_MAX
};

struct blob_range {
	uint32_t offset; /* from the start of the blob */
	uint32_t size;	 /* bytes */
};

struct blob_header {
	uint32_t magic;
	uint16_t version;
	uint16_t sections; /* SEC_MAX of the writer; must equal ours */
	uint32_t size;	   /* of the whole blob */
	uint32_t reserved; /* 0 */
	struct blob_range section[SEC_MAX];
};

/* ------------------------------------------------------------------ mount operations */

enum mount_op_kind {
	/* In the upper layer, before the overlay is mounted (cheap: no mount of their own). */
	OP_DIR = 1, /* dst: directory with mode, owned by OWNER_* */
	OP_FILE,    /* dst: file with mode and `data` */
	OP_SYMLINK, /* dst: link to src */
	/* Root: */
	OP_LOWER, /* src: a layer directory of the host, topmost first (root blob only) */
	/* On the new root, in order: */
	OP_BIND,  /* src (host path) on dst */
	OP_TMPFS, /* dst: size bytes, mode */
	OP_DEV,	  /* dst: fresh /dev; size = bytes of /dev/shm */
	OP_PROC,  /* dst: fresh procfs */
	/* After the files of the run are in place: */
	OP_MASK,     /* dst hidden: a file by /dev/null, a directory by an empty tmpfs */
	OP_READONLY, /* dst made read-only with everything below it */
	OP_MAKE_EXEC, /* dst: execute bits set where read bits are; with src, a pattern, of all files below
			 dst that match */
	OP_TRUST, /* dst, a directory: the image's certificate authorities with `data` behind them, in a file
		     TRUST_FILE, and that over each list of the image's own (stage_trust.c) */
	OP_SHARED, /* with the binds; dst: /workspace, the directory that the owner shares */
	OP_KIND_MAX
};
#define TRUST_FILE "ca-certificates.crt"

enum mount_op_flags {
	OPF_RDONLY = 1 << 0,
	OPF_NOEXEC = 1 << 1,
	OPF_NODEV = 1 << 2,
	OPF_NOSUID = 1 << 3,
	OPF_RECURSIVE = 1 << 4,	    /* bind with submounts */
	OPF_OPTIONAL = 1 << 5,	    /* missing src or dst: skipped */
	OPF_OWNER_PAYLOAD = 1 << 6, /* else owned by inside-root (or the single id) */
	OPF_MKDST = 1 << 7,	    /* make dst (as src is: file or directory) where missing */
	OPF_ALL = (1 << 8) - 1
};

struct mount_op {
	uint16_t kind;	 /* enum mount_op_kind */
	uint16_t flags;	 /* enum mount_op_flags */
	uint32_t mode;	 /* 07777 bits, for OP_DIR, OP_FILE, OP_TMPFS */
	str_off src;	 /* host path or link target */
	str_off dst;	 /* absolute path inside, no "." or ".." components, never "/" */
	uint64_t size;	 /* bytes: tmpfs size, /dev/shm size, length of `data` */
	uint32_t data;	 /* OP_FILE, OP_TRUST: offset into SEC_DATA */
	uint32_t inodes; /* tmpfs: nr_inodes, 0 = size / 1024 */
};

/* ------------------------------------------------------------------ Landlock */

struct landlock_rule {
	uint64_t access; /* LANDLOCK_ACCESS_FS_*, or _NET_* where port is not 0 */
	str_off path;	 /* inside path, "" for a port rule */
	uint16_t port;
	uint16_t optional; /* 1: a missing path is skipped */
};

/*
 * A root list's rule: a directory or file at the top of an image. Reading and executing are for all; the
 * rest only for inside-root, where the plan makes the run that (stage_landlock).
 */
#define ROOT_TREE_RIGHTS ((UINT64_C(1) << 15) - 1)
#define ROOT_FILE_RIGHTS (UINT64_C(0x7) | UINT64_C(1) << 14) /* EXECUTE, WRITE, READ, TRUNCATE */
#define ROOT_TREE_READ	 UINT64_C(0xd)			     /* EXECUTE, READ_FILE, READ_DIR */

/* What PATH is unless a manifest sets it: then an image's own wins. */
#define PLAN_DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

/* ------------------------------------------------------------------ outputs */

/* Where nothing else is said: */
#define OUTPUT_DEFAULT_BYTES (UINT64_C(20) << 20) /* of each file */
#define OUTPUT_DEFAULT_FILES 100u

struct output_rule {
	str_off glob; /* relative to the run's working directory: * ? [] within one name, ** across */
	uint32_t max_files;
	uint64_t max_bytes; /* of each file */
};

/* ------------------------------------------------------------------ plan_fixed */

enum plan_flags {
	PLAN_ROOT_RDONLY = 1 << 0, /* the overlay root is mounted read-only (profile strict) */
	PLAN_UPPER_DISK =
		1 << 1, /* `disk` is more than memory: the upper layer is a file system on disk */
	PLAN_PROCESS = 1 << 2, /* the tier "process": no namespaces, no mounts (process_tier.h) */
	PLAN_FLAGS_ALL = (1 << 3) - 1
};

struct plan_limits {
	uint64_t memory; /* bytes; cgroup memory limit (swap none) or the watchdog's */
	uint64_t disk;	 /* bytes of the upper layer (root, HOME, workspace), and of /tmp */
	uint64_t disk_inodes;
	uint64_t file_size;  /* RLIMIT_FSIZE, bytes */
	uint32_t pids;	     /* processes and threads */
	uint32_t cpu_milli;  /* 1500 = one and a half CPUs; affinity is this, rounded up */
	uint32_t open_files; /* RLIMIT_NOFILE */
	uint32_t reserved;
	uint64_t wall_ms;		 /* default of an exec; 0 = none */
	uint64_t cpu_ms;		 /* RLIMIT_CPU, 0 = none */
	uint64_t grace_ms;		 /* between TERM and KILL */
	uint64_t stdout_max, stderr_max; /* bytes kept by whoever captures */
	uint64_t result_max;		 /* bytes of a function's result */
};

struct plan_fixed {
	uint32_t flags;	       /* enum plan_flags */
	uint32_t landlock_abi; /* the ABI it was compiled for; the host must have it */
	uint64_t landlock_fs;  /* handled_access_fs */
	uint64_t landlock_net; /* handled_access_net */
	uint64_t landlock_scoped;
	uint8_t layer[32]; /* enum nsbox_requirement by enum nsbox_layer, rest 0 */
	uint32_t uid, gid; /* the payload's ids inside: 1000, or 0 in profile build */
	str_off hostname;
	str_off profile;	 /* name, for receipts */
	str_off manifest_sha256; /* hex, "" for none ("default") */
	str_off workdir;	 /* default working directory */
	str_off home;
	uint32_t subprocess; /* enum plan_subprocess */
	struct plan_limits limits;
};

enum plan_subprocess { SUBPROCESS_NONE, SUBPROCESS_SKILL, SUBPROCESS_ANY, SUBPROCESS_MAX };

_Static_assert(NSBOX_LAYER_MAX <= 32, "layers fit the table and a bit set");

/* ------------------------------------------------------------------ exec_fixed */

enum exec_flags {
	EXECF_TTY = 1 << 0,	  /* a terminal of its own; its master goes back to the owner */
	EXECF_KILL_REST = 1 << 1, /* when it ends everything else in the sandbox ends (one-shot) */
	EXECF_FD3 = 1 << 2,	  /* a request descriptor is passed as 3 */
	EXECF_FD4 = 1 << 3,	  /* a result descriptor is passed as 4 */
	EXECF_TRACE = 1 << 4,	  /* a socket of the observer's is passed, for who tries opens */
	EXECF_WAITS = 1 << 5,	  /* its time begins when the owner says so */
	EXECF_NARROW = 1 << 6,	  /* it has rules of its own, which hold besides the plan's */
	EXECF_JOINS = 1 << 7,	  /* files are passed by which it joins its control groups */
	EXECF_ALL = (1 << 8) - 1
};

/*
 * Of a program that may do less than its sandbox's plan allows, with SEC_BPF and SEC_LANDLOCK: a second
 * filter and a second domain on top of the plan's, so that whatever stands here can only take away. The
 * variables of such a request stand for the plan's, too.
 */
struct exec_narrow {
	uint64_t landlock_fs, landlock_net; /* handled; 0: no domain */
	uint64_t file_size, cpu_ms;	    /* as in plan_limits; 0: the plan's */
	uint32_t open_files;		    /* 0: the plan's */
	uint32_t reserved;
};

struct exec_fixed {
	uint32_t flags;
	uint32_t reserved;
	str_off cwd; /* absolute; "" = the plan's workdir */
	uint16_t tty_rows, tty_cols;
	uint64_t wall_ms; /* 0 = the plan's */
	str_off reserved2[2];
	struct exec_narrow narrow; /* EXECF_NARROW, else 0 */
};

/* ------------------------------------------------------------------ verb_fixed */

/* struct nsbox_file_request (nsbox/files.h), whose values these are. */
struct verb_fixed {
	uint32_t verb, flags, mode, deadline_ms;
	uint64_t offset, length, total_bytes;
	uint32_t files;
	str_off path, target, pattern, text; /* what a verb does not use is "" */
	uint32_t reserved;		     /* 0 */
};

#endif
