// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"errors"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func TestFreeVLANs(t *testing.T) {
	used := []wireSubport{{SegmentationID: 1}, {SegmentationID: 3}, {SegmentationID: 4094}}
	for _, test := range []struct {
		last int32
		want []int32
	}{{0, []int32{2, 4}}, {2, []int32{4, 5}}, {4092, []int32{4093, 2}}, {4094, []int32{2, 4}}} {
		got, err := freeVLANs(used, test.last, 2)
		if err != nil || got[0] != test.want[0] || got[1] != test.want[1] {
			t.Errorf("freeVLANs after %d = %v, %v; want %v", test.last, got, err, test.want)
		}
	}
	if _, err := freeVLANs(used, 0, maxVLAN-2); !errors.Is(err, sdn.ErrQuota) {
		t.Errorf("freeVLANs of more than there are: %v, want ErrQuota", err)
	}
}
