/* SPDX-License-Identifier: Apache-2.0 */
/* No side effects beyond their arguments: clean-up attributes, small string and fd helpers. */
#ifndef NSBOX_UTIL_H
#define NSBOX_UTIL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))

/* close that keeps errno; takes the address, leaves -1: closing twice is harmless. */
static inline void close_fd(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

static inline void free_ptr(void *p)
{
	void **pp = p;

	free(*pp);
	*pp = NULL;
}

#define auto_close __attribute__((cleanup(close_fd)))
#define auto_free  __attribute__((cleanup(free_ptr)))

/* Disarm auto_close / auto_free: the value goes to the caller. */
static inline int take_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}

#define take_ptr(p)                                                                                \
	({                                                                                         \
		typeof(*(p)) v_ = *(p);                                                            \
		*(p) = NULL;                                                                       \
		v_;                                                                                \
	})

/* Whole-buffer read and write over EINTR and short transfers; 0, or -errno. read_full gives
 * -ENODATA at an early end. */
int read_full(int fd, void *buf, size_t len);
int write_full(int fd, const void *buf, size_t len);
/* A small file into buf, NUL-terminated; its length, or -errno (-EFBIG where it does not fit). */
ssize_t read_small_file(int dir_fd, const char *path, char *buf, size_t size);
int write_small_file(int dir_fd, const char *path, const char *text);

uint64_t monotonic_us(void);
/* Strict decimal, no sign, no leading zero, whole string; false where it is not or overflows. */
bool parse_u64(const char *s, uint64_t *ret);
int make_memfd(const char *name, const void *data, size_t len, bool seal);

#endif
