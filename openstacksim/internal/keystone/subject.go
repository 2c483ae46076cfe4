// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"net/http"
	"time"
)

// validate answers GET and HEAD /v3/auth/tokens. Any caller may validate tokens of the same user.
// An admin or a service may validate every token.
func (s *Service) validate(r *request) (reply, *fault) {
	id := r.Header.Get("X-Subject-Token")
	t, f := s.look(id)
	if f != nil && !r.admin() && !r.who.Has("service") {
		return reply{}, f
	}
	if t != nil && t.user != r.who.UserID && !r.admin() && !r.who.Has("service") {
		action := "identity:validate_token"
		if r.Method == http.MethodHead {
			action = "identity:check_token"
		}
		return reply{}, forbidden(action)
	}
	if f != nil {
		return reply{}, f
	}
	_, bare := r.query["nocatalog"]
	return reply{http.StatusOK, s.render(t, !bare), http.Header{"X-Subject-Token": {t.id}}}, nil
}

func (s *Service) revoke(r *request) (reply, *fault) {
	t, f := s.look(r.Header.Get("X-Subject-Token"))
	if f != nil {
		return reply{}, f
	}
	if t.user != r.who.UserID && !r.admin() {
		return reply{}, forbidden("identity:revoke_token")
	}
	t.revoked = true
	return done()
}

// expiry parses the time at which a credential shall expire. keystone 22.0.2: common/utils.py
func (s *Service) expiry(given string) (time.Time, *fault) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999", "2006-01-02T15:04:05"} {
		t, err := time.Parse(layout, given)
		if err != nil {
			continue
		}
		if t.Before(s.now()) {
			return t, refuse(http.StatusBadRequest, "The 'expires_at' must not be before now. %s", malformed)
		}
		return t, nil
	}
	return time.Time{}, refuse(http.StatusBadRequest, "Timestamp not in expected format. %s", malformed)
}
