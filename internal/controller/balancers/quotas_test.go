// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// quotaTest sends requests to quotas that have room.
type quotaTest struct {
	quotas
	now         time.Time
	room, asked int
}

const quotaPause = 30 * time.Second

func (q *quotaTest) ask(of quota, size int) error {
	next := q.now.Add(quotaPause)
	if err := q.take(of, size, q.now, next); err != nil {
		return err
	}
	var err error
	if q.asked++; q.room < size {
		err = fmt.Errorf("no room: %w", sdn.ErrQuota)
	} else {
		q.room -= size
	}
	q.note(of, size, err, next)
	return err
}

// TestOneRequestForAQuota: of many requests over a quota, one is sent in a pause. A request for less does
// not wait for those for more, nor one of another project. When there is room, all are sent.
func TestOneRequestForAQuota(t *testing.T) {
	q := &quotaTest{now: time.Unix(1000, 0)}
	of := quota{"load balancers", "red"}
	for range 5 {
		for range 50 {
			if err := q.ask(of, 2); !errors.Is(err, sdn.ErrQuota) {
				t.Fatalf("ask without room: %v, want ErrQuota", err)
			}
		}
		q.now = q.now.Add(quotaPause)
	}
	if q.asked != 5 {
		t.Errorf("%d requests were sent in five pauses, want one in each", q.asked)
	}
	q.now = q.now.Add(-time.Second) // within a pause
	if err := q.ask(of, 2); !errors.Is(err, errTurn) {
		t.Errorf("within a pause: %v, want that it is not sent", err)
	}
	if err := q.ask(of, 1); errors.Is(err, errTurn) {
		t.Errorf("a request for less: %v, want that it is sent", err)
	}
	if err := q.ask(quota{"load balancers", "blue"}, 2); errors.Is(err, errTurn) {
		t.Errorf("a request in another project: %v, want that it is sent", err)
	}
	q.room = 100
	q.now = q.now.Add(2 * quotaPause)
	for range 50 {
		if err := q.ask(of, 2); err != nil {
			t.Fatalf("with room: %v", err)
		}
	}
}

// TestQuotaFreed: after a deletion one request for each quota is sent at once.
func TestQuotaFreed(t *testing.T) {
	q := &quotaTest{now: time.Unix(1000, 0)}
	of := quota{"load balancers", ""}
	_ = q.ask(of, 1)
	q.freed()
	_, _ = q.ask(of, 1), q.ask(of, 1)
	if q.asked != 2 {
		t.Errorf("%d requests were sent, want one more after the deletion", q.asked)
	}
}
