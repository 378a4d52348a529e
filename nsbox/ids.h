/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots and ids.
 *
 * A slot is a small number that one live sandbox of this host holds alone: it names the sandbox's
 * control group and, where the owner may map a range, its outside user id. It is a byte range of a
 * lock file, held by an open-file-description lock: when the owner dies, however it dies, the
 * kernel frees it, and whatever still carries the number is known to be a leftover.
 */
#ifndef NSBOX_IDS_H
#define NSBOX_IDS_H

#include <nsbox/host.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * Outside ids of a privileged owner. 1879048192 is the first id above the range that systemd gives
 * to containers and below 2^31: nothing of Debian's assigns it. The image block holds what images
 * own (inside 0-999 and 1001-65535); each sandbox's payload is an id of its own above it.
 */
#define IDS_IMAGE_BASE	 UINT32_C(1879048192)
#define IDS_PAYLOAD_BASE (IDS_IMAGE_BASE + 65536)
#define IDS_SLOTS	 16384
#define IDS_INSIDE	 1000 /* the payload, inside */
/* Tier "process": init, and who ends what a payload has started (process_ids.c), of each slot. */
#define IDS_INIT_BASE	(IDS_PAYLOAD_BASE + IDS_SLOTS + 1)
#define IDS_REAPER_BASE (IDS_INIT_BASE + IDS_SLOTS)
#define IDS_END		(IDS_REAPER_BASE + IDS_SLOTS)

struct slot {
	bool held;
	uint32_t number;
};

/* Directory for locks: /run/nsbox, or $XDG_RUNTIME_DIR/nsbox for who cannot write there. */
int ids_run_dir(char *buf, int size, struct nsbox_error *err);
/* The lowest free slot. */
int slot_take(struct slot *ret, struct nsbox_error *err);
void slot_release(struct slot *slot);
/* Is this slot free? If so take it (to clean up behind a dead owner). */
int slot_try(uint32_t number, struct slot *ret);

/* Who the payload is outside, where that may be chosen. */
struct ids_payload {
	uid_t uid;
	gid_t gid;
};

static inline struct ids_payload ids_of_slot(uint32_t slot)
{
	return (struct ids_payload){ IDS_PAYLOAD_BASE + slot, IDS_PAYLOAD_BASE + slot };
}

/*
 * Write the maps of a child that waits in a new user namespace. `inside` is the payload's id there
 * where only a single one can be mapped: IDS_INSIDE, or 0 for profile build.
 */
int ids_write_maps(pid_t pid, int kind, struct ids_payload outside, uint32_t inside,
		   struct nsbox_error *err);

#endif
