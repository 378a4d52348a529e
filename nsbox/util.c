/* SPDX-License-Identifier: Apache-2.0 */
#include "nsbox/util.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

int read_full(int fd, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int write_full(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

ssize_t read_small_file(int dir_fd, const char *path, char *buf, size_t size)
{
	auto_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;

	if (fd < 0)
		return -errno;
	while (len < size) {
		ssize_t n = read(fd, buf + len, size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0) {
			buf[len] = '\0';
			return (ssize_t)len;
		}
		len += (size_t)n;
	}
	return -EFBIG;
}

int write_small_file(int dir_fd, const char *path, const char *text)
{
	auto_close int fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC);
	size_t len = strlen(text);
	ssize_t n;

	if (fd < 0)
		return -errno;
	/* Kernel files take one write or none: a loop would hide a refusal of the rest. */
	n = write(fd, text, len);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

uint64_t monotonic_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

bool parse_u64(const char *s, uint64_t *ret)
{
	uint64_t v = 0;

	if (*s < '0' || *s > '9' || (*s == '0' && s[1]))
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return false;
	}
	*ret = v;
	return true;
}

int make_memfd(const char *name, const void *data, size_t len, bool seal)
{
	auto_close int fd = memfd_create(name, MFD_CLOEXEC | (seal ? MFD_ALLOW_SEALING : 0));
	int r;

	if (fd < 0)
		return -errno;
	r = write_full(fd, data, len);
	if (r < 0)
		return r;
	if (seal &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
		return -errno;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	return take_fd(&fd);
}
