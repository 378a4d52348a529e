/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two protocols of a service manager: sockets that it has opened already (LISTEN_FDS), and what
 * it wants to hear (NOTIFY_SOCKET, WATCHDOG_USEC). By hand: they are two variables and a datagram.
 */
#ifndef FRONT_SD_H
#define FRONT_SD_H

#include <nsbox/error.h>
#include <stdint.h>

/* Sockets that came with the start, -1 where there is none; the variables are removed. */
int sd_take_sockets(int *ret_unix, int *ret_tcp, struct nsbox_error *err);
/* "READY=1" and the like; nothing where nobody listens. */
void sd_notify_text(const char *text);
/* Microseconds between signs of life that are asked for, 0 for none. */
uint64_t sd_watchdog_us(void);

#endif
