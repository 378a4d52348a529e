/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file stream: how files travel into and out of a sandbox.
 *
 * A sequence of frames over a pipe or memfd: a fixed header, the path (no NUL), then the content.
 * Directories come before what is in them. It ends with a frame of kind END; a stream that just
 * stops is an error. Archives (tar, zip) are turned into this stream by a confined worker; skill
 * directories by nsbox_files_send_dir(). Host byte order: it never leaves the machine.
 *
 * Paths are relative, of 1-4095 bytes, with no empty, "." or ".." component, no NUL and no
 * component over 255 bytes; names are bytes. The receiver checks all of this and opens with
 * RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS.
 */
#ifndef NSBOX_FILES_H
#define NSBOX_FILES_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

#define NSBOX_FRAME_MAGIC UINT32_C(0x316d7266) /* "frm1" */

enum nsbox_frame_kind {
	NSBOX_FRAME_END =
		1, /* aux: enum nsbox_error_code of the sender, 0 for a whole stream; content: message */
	NSBOX_FRAME_DIR,     /* mode */
	NSBOX_FRAME_FILE,    /* mode, size bytes of content */
	NSBOX_FRAME_SYMLINK, /* content is the target */
	NSBOX_FRAME_BASE,    /* path is an absolute inside directory: what follows goes below it */
	NSBOX_FRAME_NOTE,    /* collect: path was not sent; content says why */
	NSBOX_FRAME_INFO,    /* content: struct nsbox_file_info, then a link's target; no path: the
				object that was asked for itself */
	NSBOX_FRAME_MATCH,   /* content: struct nsbox_file_match, then the line */
};

struct nsbox_frame {
	uint32_t magic;
	uint16_t kind;
	uint16_t path_len;
	uint32_t mode; /* 0777 bits; set-id bits are dropped */
	uint32_t aux;
	uint64_t size; /* of the content */
};

struct nsbox_files_limits {
	uint64_t total_bytes;
	uint32_t files; /* frames */
};
#define NSBOX_FILES_LIMITS_DEFAULT ((struct nsbox_files_limits){ 256u << 20, 20000 })

/* ---- writing (blocking; the descriptor is borrowed) */

int nsbox_files_put_frame(int fd, int kind, const char *path, uint32_t mode, const void *data,
			  uint64_t size, struct nsbox_error *err);
int nsbox_files_end(int fd, struct nsbox_error *err);
/*
 * Send the tree below an open directory as frames: regular files, directories and symbolic links
 * whose target stays inside the tree; sockets, devices and FIFOs are an error that names them.
 * dir_fd is borrowed. Never follows a link.
 */
int nsbox_files_send_dir(int fd, int dir_fd, const struct nsbox_files_limits *lim,
			 struct nsbox_error *err);

/* ---- reading */

/*
 * Take a stream into a directory of the caller (for `--output DIR`): each file is made new below
 * dir_fd, never through a link, 0644/0755 and 0755 for directories. Existing files are replaced.
 * `each` (may be NULL) hears of every file and note.
 */
typedef void nsbox_files_fn(void *ctx, int kind, const char *path, uint64_t size, const char *note);
int nsbox_files_receive_dir(int fd, int dir_fd, const struct nsbox_files_limits *lim,
			    nsbox_files_fn *each, void *ctx, struct nsbox_error *err);

/*
 * Incremental reader for event loops: feed bytes as they come. The callbacks borrow their
 * arguments. Malformed input makes nsbox_files_feed() fail for good.
 */
struct nsbox_files_reader;
struct nsbox_files_sink {
	int (*begin)(void *ctx, int kind, const char *path, uint32_t mode, uint64_t size,
		     struct nsbox_error *err);
	int (*data)(void *ctx, const void *buf, size_t len, struct nsbox_error *err);
	int (*finish)(void *ctx, struct nsbox_error *err);
};
int nsbox_files_reader_new(const struct nsbox_files_sink *sink, void *ctx,
			   const struct nsbox_files_limits *lim, struct nsbox_files_reader **ret,
			   struct nsbox_error *err);
void nsbox_files_reader_free(struct nsbox_files_reader *r);
int nsbox_files_feed(struct nsbox_files_reader *r, const void *buf, size_t len,
		     struct nsbox_error *err);
bool nsbox_files_done(const struct nsbox_files_reader *r); /* END was seen */

/* Is this a relative path as described above? `max` bytes of path, no NUL needed. */
int nsbox_files_check_path(const char *path, size_t len, struct nsbox_error *err);

/* ---- verbs on the files of a live sandbox: nsbox_sandbox_files() */

/*
 * A helper inside the sandbox, confined as a payload, does what is asked. Paths are what they are
 * for commands: absolute, or relative to the plan's working directory; links of the sandbox are
 * followed on the way, and a last one only where that is said. What `out` gets is a file stream.
 */
enum nsbox_file_verb {
	NSBOX_FILE_STAT = 1, /* out: INFO. A link in the last place is followed with FOLLOW */
	NSBOX_FILE_LIST,     /* out: INFO of each entry; with RECURSIVE of all below */
	NSBOX_FILE_GET, /* out: INFO (no path), then FILE "content": `length` bytes from `offset`, as
				far as there are. Follows links, regular files only */
	NSBOX_FILE_PUT, /* in: the content. Takes the place of a file or link at once, when all of it
				has come; never written through a link. out: INFO of what was made */
	NSBOX_FILE_MKDIR,  /* with PARENTS as mkdir -p */
	NSBOX_FILE_REMOVE, /* a file or an empty directory; with RECURSIVE anything */
	NSBOX_FILE_MOVE,   /* to `target`; a file there is replaced, unless EXCLUSIVE */
	NSBOX_FILE_UPLOAD, /* in: a file stream, unpacked below the directory, which is made */
	NSBOX_FILE_DOWNLOAD, /* out: DIR, FILE, SYMLINK (only such as stay in the tree) and NOTE of all
				below the directory, or the one FILE */
	NSBOX_FILE_GLOB,     /* out: INFO of what is below the directory and matches `pattern` */
	NSBOX_FILE_GREP, /* out: MATCH of lines that hold `text`, in the file, or in files below the
				directory that match `pattern` (empty: all); files that hold a NUL byte
				are passed over */
	NSBOX_FILE_VERB_MAX
};

enum nsbox_file_flags {
	NSBOX_FILE_FOLLOW = 1 << 0,
	NSBOX_FILE_RECURSIVE = 1 << 1,
	NSBOX_FILE_PARENTS = 1 << 2,	 /* PUT, MKDIR, MOVE: make missing directories on the way */
	NSBOX_FILE_EXCLUSIVE = 1 << 3,	 /* PUT, MOVE: fail with EEXIST where there is something */
	NSBOX_FILE_IGNORE_CASE = 1 << 4, /* GREP: ASCII letters */
	NSBOX_FILE_FLAGS_ALL = (1 << 5) - 1
};

#define NSBOX_FILE_SIZE_UNKNOWN UINT64_MAX
#define NSBOX_FILE_MODE_DEFAULT UINT32_MAX

struct nsbox_file_request {
	uint32_t verb, flags;
	const char *path;
	const char *target;   /* MOVE */
	const char *pattern;  /* GLOB, GREP: as an output's glob, below `path` */
	const char *text;     /* GREP */
	uint32_t mode;	      /* PUT, MKDIR: 0777 bits, or MODE_DEFAULT: that of the file that is
				replaced, else 0644, 0755 */
	uint32_t deadline_ms; /* then the verb is ended; 0: a minute */
	uint64_t offset;      /* GET */
	uint64_t length;      /* GET: at most; PUT: what `in` has to give, or SIZE_UNKNOWN */
	struct nsbox_files_limits lim; /* of what goes out, or of an UPLOAD; 0: the default */
};

enum nsbox_file_type {
	NSBOX_FILE_TYPE_OTHER, /* socket, FIFO, device */
	NSBOX_FILE_TYPE_REGULAR,
	NSBOX_FILE_TYPE_DIRECTORY,
	NSBOX_FILE_TYPE_SYMLINK,
};

struct nsbox_file_info {
	uint32_t type; /* enum nsbox_file_type */
	uint32_t mode; /* 07777 bits */
	uint64_t size;
	int64_t mtime_ns; /* since 1970 */
	uint32_t links;
	uint32_t reserved;
};

struct nsbox_file_match {
	uint64_t offset; /* of the line in the file */
	uint32_t line;	 /* from 1 */
	uint32_t cut;	 /* 1: the line is longer than what follows */
};

/* A request as a sealed memfd, for a process that does not parse it: nsbox_sandbox_files_blob(). */
int nsbox_files_encode(const struct nsbox_file_request *req, int *ret_fd, struct nsbox_error *err);

#pragma GCC visibility pop

#endif
