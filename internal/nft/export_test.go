// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// NeverForgets has t on a kernel that ends no UDP connections, until it does again.
func NeverForgets(t *Tables) (again func()) {
	t.end = func(_ context.Context, _ family, stale []translation) error {
		if len(stale) == 0 {
			return nil
		}
		return errors.New("protocol not supported")
	}
	return func() { t.end = nil }
}

// Forgets counts the translations that t has the kernel end, each time.
func Forgets(t *Tables) (counts *[]int) {
	counts = new([]int)
	t.end = func(_ context.Context, _ family, stale []translation) error {
		if len(stale) > 0 {
			*counts = append(*counts, len(stale))
		}
		return nil
	}
	return counts
}

// Meddle makes and removes a table of somebody else's.
func Meddle() error {
	name := text(unix.NFTA_TABLE_NAME, "theirs")
	for _, m := range []message{{"making theirs", unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, name}, {"removing theirs", unix.NFT_MSG_DELTABLE, 0, name}} {
		if err := commit(unix.NFPROTO_IPV4, []message{m}); err != nil {
			return err
		}
	}
	return nil
}
