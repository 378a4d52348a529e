/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors, and the formatter they are written with.
 *
 * The formatter is our own because messages are also made after clone(2), where stdio (locks,
 * heap, locale) may not be used; the same code then serves everywhere, so that a failure in the
 * child reads like one in the parent.
 */
#include <nsbox/error.h>

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "nsbox/util.h"

struct out {
	char *buf;
	int size; /* of buf, with its NUL */
	int len;
};

static void put(struct out *o, char c)
{
	if (o->len + 1 < o->size)
		o->buf[o->len++] = c;
}

static void put_str(struct out *o, const char *s, int max)
{
	for (; s && max != 0 && *s; s++, max--)
		put(o, *s);
}

static void put_number(struct out *o, uintmax_t v, unsigned base, bool minus, int width, char pad)
{
	char digits[24];
	int n = 0;

	do {
		digits[n++] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	width -= minus;
	if (minus && pad == '0')
		put(o, '-');
	for (; width > n; width--)
		put(o, pad);
	if (minus && pad != '0')
		put(o, '-');
	while (n > 0)
		put(o, digits[--n]);
}

static intmax_t arg_signed(va_list *ap, int longs)
{
	if (longs >= 2)
		return va_arg(*ap, intmax_t);
	return longs ? va_arg(*ap, long) : va_arg(*ap, int);
}

static uintmax_t arg_unsigned(va_list *ap, int longs)
{
	if (longs >= 2)
		return va_arg(*ap, uintmax_t);
	return longs ? va_arg(*ap, unsigned long) : va_arg(*ap, unsigned int);
}

/* One conversion, behind the '%'; returns what follows it. */
static const char *convert(struct out *o, const char *f, va_list *ap)
{
	int longs = 0, width = 0, precision = -1;
	char pad = ' ';

	if (*f == '0') {
		pad = '0';
		f++;
	}
	for (; *f >= '0' && *f <= '9'; f++)
		width = width * 10 + (*f - '0');
	if (*f == '.') {
		f++;
		if (*f == '*') {
			precision = va_arg(*ap, int);
			f++;
		} else {
			for (precision = 0; *f >= '0' && *f <= '9'; f++)
				precision = precision * 10 + (*f - '0');
		}
	}
	for (; *f == 'l' || *f == 'z' || *f == 'j'; f++)
		longs += *f == 'j' ? 2 : 1;

	switch (*f) {
	case 's': put_str(o, va_arg(*ap, const char *), precision); break;
	case 'c': put(o, (char)va_arg(*ap, int)); break;
	case 'u': put_number(o, arg_unsigned(ap, longs), 10, false, width, pad); break;
	case 'x': put_number(o, arg_unsigned(ap, longs), 16, false, width, pad); break;
	case 'o': put_number(o, arg_unsigned(ap, longs), 8, false, width, pad); break;
	case 'd':
	case 'i': {
		intmax_t v = arg_signed(ap, longs);

		put_number(o, v < 0 ? 0 - (uintmax_t)v : (uintmax_t)v, 10, v < 0, width, pad);
		break;
	}
	case '\0': return f;
	default: put(o, *f); break;
	}
	return f + 1;
}

int nsbox_vformat(char *buf, int size, const char *fmt, va_list ap)
{
	struct out o = { buf, size, 0 };
	va_list copy;

	if (size <= 0)
		return 0;
	va_copy(copy, ap);
	while (*fmt) {
		if (*fmt != '%')
			put(&o, *fmt++);
		else
			fmt = convert(&o, fmt + 1, &copy);
	}
	va_end(copy);
	buf[o.len] = '\0';
	return o.len;
}

int nsbox_format(char *buf, int size, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = nsbox_vformat(buf, size, fmt, ap);
	va_end(ap);
	return n;
}

static int fail(struct nsbox_error *err, int stage, int code, int errnum, const char *fmt,
		va_list ap)
{
	int n;

	if (errnum < 0)
		errnum = -errnum;
	if (err) {
		memset(err, 0, sizeof(*err));
		err->code = code;
		err->errnum = errnum;
		err->stage = stage;
		n = nsbox_vformat(err->msg, sizeof(err->msg), fmt, ap);
		if (errnum) {
			/* strerrordesc_np (glibc 2.32) reads a table: no locale, no buffer. */
			const char *text = strerrordesc_np(errnum);

			nsbox_format(err->msg + n, (int)sizeof(err->msg) - n, ": %s",
				     text ? text : "unknown error");
		}
	}
	return errnum ? -errnum : -EINVAL;
}

int nsbox_fail(struct nsbox_error *err, int code, int errnum, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = fail(err, NSBOX_STAGE_NONE, code, errnum, fmt, ap);
	va_end(ap);
	return r;
}

int nsbox_fail_at(struct nsbox_error *err, int stage, int code, int errnum, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = fail(err, stage, code, errnum, fmt, ap);
	va_end(ap);
	return r;
}

void nsbox_error_prefix(struct nsbox_error *err, const char *fmt, ...)
{
	char old[NSBOX_ERROR_MSG_MAX];
	va_list ap;
	int n;

	if (!err || !err->code)
		return;
	memcpy(old, err->msg, sizeof(old));
	va_start(ap, fmt);
	n = nsbox_vformat(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	nsbox_format(err->msg + n, (int)sizeof(err->msg) - n, ": %s", old);
}

static const char *const code_names[NSBOX_E_CODE_MAX] = {
	[NSBOX_E_OK] = "ok",
	[NSBOX_E_INVALID] = "invalid",
	[NSBOX_E_MANIFEST] = "manifest",
	[NSBOX_E_UNSUPPORTED] = "unsupported",
	[NSBOX_E_SETUP] = "setup",
	[NSBOX_E_EXEC] = "exec",
	[NSBOX_E_LIMIT] = "limit",
	[NSBOX_E_PROTOCOL] = "protocol",
	[NSBOX_E_NOMEM] = "noMemory",
	[NSBOX_E_IO] = "io",
	[NSBOX_E_SANDBOX] = "sandbox",
	[NSBOX_E_CANCELLED] = "cancelled",
};

/* clang-format off */
static const char *const stage_names[NSBOX_STAGE_MAX] = {
	[NSBOX_STAGE_NONE] = "none",
	[NSBOX_STAGE_PROBE] = "probe",
	[NSBOX_STAGE_RESOLVE] = "resolve",
	[NSBOX_STAGE_COMPILE] = "compile",
	[NSBOX_STAGE_PLAN] = "plan",
	[NSBOX_STAGE_IMAGE] = "image",
	[NSBOX_STAGE_IDS] = "ids",
	[NSBOX_STAGE_CGROUP] = "cgroup",
	[NSBOX_STAGE_CLONE] = "clone",
	[NSBOX_STAGE_PROPAGATION] = "propagation",
	[NSBOX_STAGE_SCRATCH] = "scratch",
	[NSBOX_STAGE_OVERLAY] = "overlay",
	[NSBOX_STAGE_DEV] = "dev",
	[NSBOX_STAGE_PROC] = "proc",
	[NSBOX_STAGE_MOUNT] = "mount",
	[NSBOX_STAGE_PIVOT] = "pivot",
	[NSBOX_STAGE_FILES] = "files",
	[NSBOX_STAGE_MASK] = "mask",
	[NSBOX_STAGE_LOOPBACK] = "loopback",
	[NSBOX_STAGE_NFTABLES] = "nftables",
	[NSBOX_STAGE_EGRESS] = "egress",
	[NSBOX_STAGE_SYSCTL] = "sysctl",
	[NSBOX_STAGE_HOSTNAME] = "hostname",
	[NSBOX_STAGE_CAPABILITIES] = "capabilities",
	[NSBOX_STAGE_LANDLOCK] = "landlock",
	[NSBOX_STAGE_INIT_FILTER] = "initFilter",
	[NSBOX_STAGE_READY] = "ready",
	[NSBOX_STAGE_FORK] = "fork",
	[NSBOX_STAGE_STDIO] = "stdio",
	[NSBOX_STAGE_TERMINAL] = "terminal",
	[NSBOX_STAGE_LIMITS] = "limits",
	[NSBOX_STAGE_CREDENTIALS] = "credentials",
	[NSBOX_STAGE_SECCOMP] = "seccomp",
	[NSBOX_STAGE_WITNESS] = "witness",
	[NSBOX_STAGE_CWD] = "cwd",
	[NSBOX_STAGE_EXECVE] = "execve",
	[NSBOX_STAGE_COLLECT] = "collect",
};
/* clang-format on */

const char *nsbox_error_code_name(int code)
{
	if (code < 0 || code >= NSBOX_E_CODE_MAX || !code_names[code])
		return "unknown";
	return code_names[code];
}

const char *nsbox_stage_name(int stage)
{
	if (stage < 0 || stage >= NSBOX_STAGE_MAX || !stage_names[stage])
		return "unknown";
	return stage_names[stage];
}
