/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load for a network, and what it carries:
 *
 *	netload serve ADDRESS		print a port, serve until killed
 *	netload pull HOST PORT SECONDS	MB/s from there, by one connection
 *	netload push HOST PORT SECONDS	MB/s to there
 *	netload connect HOST PORT COUNT	median time in us of connect(), and until the first byte
 *					came back (what can be had before the far end was reached
 *					differs from way to way; the second is the same thing for all)
 *
 * The first byte that a client sends says what it wants.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK	(1u << 20)
#define THREADS 8

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ------------------------------------------------------------------ the server */

static void serve_one(int fd, char *block)
{
	char what = 0;

	if (recv(fd, &what, 1, 0) == 1) {
		while (what == 'd' && send(fd, block, BLOCK, 0) > 0)
			;
		while (what == 'u' && recv(fd, block, BLOCK, 0) > 0)
			;
		if (what == 'e')
			(void)!send(fd, &what, 1, 0);
	}
	close(fd);
}

/* One of those that wait: to make a thread for each connection would cost more than what is measured. */
static void *serve_some(void *arg)
{
	int listener = (int)(intptr_t)arg, fd;
	char *block = calloc(1, BLOCK);

	if (!block)
		errx(1, "memory");
	while ((fd = accept(listener, NULL, NULL)) >= 0)
		serve_one(fd, block);
	err(1, "accept");
}

static int serve(const char *address)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;

	inet_pton(AF_INET, address, &a.sin_addr);
	if (listener < 0 || bind(listener, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(listener, 4096) < 0 || getsockname(listener, (struct sockaddr *)&a, &len) < 0)
		err(1, "listen");
	printf("%u\n", ntohs(a.sin_port));
	fflush(stdout);
	for (int i = 0; i < THREADS - 1; i++)
		if (pthread_create(&thread, NULL, serve_some, (void *)(intptr_t)listener) != 0)
			errx(1, "thread");
	serve_some((void *)(intptr_t)listener);
	return 1;
}

/* ------------------------------------------------------------------ clients */

static int open_to(const struct addrinfo *a, char what)
{
	const int on = 1;
	int fd = socket(a->ai_family, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) < 0)
		err(1, "connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (what && send(fd, &what, 1, 0) != 1)
		err(1, "send");
	return fd;
}

static int carry(const struct addrinfo *a, char what, double seconds)
{
	char *block = calloc(1, BLOCK);
	int fd = open_to(a, what);
	double began, end;
	uint64_t bytes = 0;
	ssize_t n;

	if (!block)
		err(1, "memory");
	if (what == 'd' && recv(fd, block, 1, 0) != 1) /* it flows */
		err(1, "recv");
	began = now();
	do {
		n = what == 'd' ? recv(fd, block, BLOCK, 0) : send(fd, block, BLOCK, 0);
		if (n <= 0)
			err(1, "transfer");
		bytes += (uint64_t)n;
		end = now();
	} while (end - began < seconds);
	printf("%.1f\n", (double)bytes / 1e6 / (end - began));
	free(block);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int connect_often(const struct addrinfo *a, int count)
{
	double *made = calloc((size_t)count, sizeof(double)),
	       *answered = calloc((size_t)count, sizeof(double));
	const struct linger at_once = { 1, 0 };
	char c;

	if (!made || !answered || count < 1)
		errx(1, "count");
	for (int i = 0; i < count; i++) {
		double began = now();
		int fd = open_to(a, 0);

		made[i] = (now() - began) * 1e6;
		if (send(fd, "e", 1, 0) != 1 || recv(fd, &c, 1, 0) != 1)
			err(1, "answer");
		answered[i] = (now() - began) * 1e6;
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		close(fd);
	}
	qsort(made, (size_t)count, sizeof(double), by_value);
	qsort(answered, (size_t)count, sizeof(double), by_value);
	printf("%.1f %.1f\n", made[count / 2], answered[count / 2]);
	free(made);
	free(answered);
	return 0;
}

int main(int argc, char **argv)
{
	const struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	struct addrinfo *a;
	int r;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc != 5)
		errx(2, "usage: see the source");
	r = getaddrinfo(argv[2], argv[3], &hints, &a);
	if (r)
		errx(1, "%s: %s", argv[2], gai_strerror(r));
	if (!strcmp(argv[1], "connect"))
		return connect_often(a, atoi(argv[4]));
	return carry(a, !strcmp(argv[1], "push") ? 'u' : 'd', atof(argv[4]));
}
