/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line to standard error per fact: "<N>nsboxd EVENT key=value ...", where N is a priority of
 * syslog(3) as sd-daemon(3) reads it. Values are quoted where they hold anything but plain
 * characters, and nothing that a client sent can end a line or move a terminal's cursor.
 */
#ifndef FRONT_LOG_H
#define FRONT_LOG_H

#include <stddef.h>

/* Pairs of key and value up to a NULL key; a NULL or empty value leaves the pair out. */
void log_pairs(int level, const char *event, const char *const *pairs);
#define log_line(level, event, ...)                                                                \
	log_pairs((level), (event), (const char *const[]){ __VA_ARGS__ })
/* value into buf as it stands in a line; cut where it does not fit. */
void log_quote(const char *value, char *buf, size_t size);

#endif
