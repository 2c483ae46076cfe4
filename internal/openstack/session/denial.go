// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"reflect"
	"time"
)

// A refused credential is not offered again for a pause, which doubles with each refusal: a Keystone
// may lock an account after a few refusals, and its owner would never get in again. A changed
// credential is offered at once. Whether it has changed is read from its file at most once in
// changeCheck, as many requests may be refused meanwhile.
const (
	shortestPause = 10 * time.Second
	longestPause  = 5 * time.Minute
	changeCheck   = time.Second
)

// denial is Keystone's last word about a credential, if that was no. The zero value is none.
type denial struct {
	err     error
	of      credential // that was refused: never for a message
	pause   time.Duration
	until   time.Time
	checked time.Time // when the credential was last compared with its file
}

// again returns the denial that follows d. Only of a refused credential the pause grows: a proxy's 404,
// or a catalogue without Neutron, locks no account. A credential that cannot be read is the zero one.
func (d denial) again(of credential, err error, now time.Time) denial {
	pause := shortestPause
	if errors.As(err, new(refusedError)) && errors.As(d.err, new(refusedError)) && d.of.same(of) {
		pause = min(2*d.pause, longestPause)
	}
	return denial{err: err, of: of, pause: pause, until: now.Add(pause), checked: now}
}

// stands returns why the credential is not offered; nil if it is to be. read reads the credential.
func (d *denial) stands(now time.Time, read func() (credential, error)) error {
	if d.err == nil || !now.Before(d.until) {
		return nil
	}
	if now.Sub(d.checked) < changeCheck {
		return d.err
	}
	d.checked = now
	if is, err := read(); err != nil || is.same(d.of) {
		return d.err
	}
	d.until = now // for all who ask from now on
	return nil
}

// same reports whether a login with either credential would have the same result.
func (c credential) same(other credential) bool {
	if c.tls == nil || other.tls == nil {
		return c.tls == other.tls
	}
	return reflect.DeepEqual(c.auth, other.auth) && reflect.DeepEqual(c.endpoint, other.endpoint) &&
		c.tls.RootCAs.Equal(other.tls.RootCAs) && c.tls.InsecureSkipVerify == other.tls.InsecureSkipVerify &&
		reflect.DeepEqual(c.tls.Certificates, other.tls.Certificates)
}
