// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"encoding/json"
	"time"
)

// links are the links of a row or of a list.
type links struct {
	Self string `json:"self"`
}

type domain struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Enabled     bool           `json:"enabled"`
	Tags        []string       `json:"tags"`
	Options     map[string]any `json:"options"`
	Links       links          `json:"links"`
}

type project struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	DomainID    string         `json:"domain_id"`
	Description string         `json:"description"`
	Enabled     bool           `json:"enabled"`
	ParentID    string         `json:"parent_id"`
	IsDomain    bool           `json:"is_domain"`
	Tags        []string       `json:"tags"`
	Options     map[string]any `json:"options"`
	Links       links          `json:"links"`
}

type user struct {
	ID                string         `json:"id"`
	Name              string         `json:"name"`
	DomainID          string         `json:"domain_id"`
	Enabled           bool           `json:"enabled"`
	PasswordExpiresAt *string        `json:"password_expires_at"`
	DefaultProjectID  string         `json:"default_project_id,omitempty"`
	Description       string         `json:"description,omitempty"`
	Email             string         `json:"email,omitempty"`
	Options           map[string]any `json:"options"`
	Links             links          `json:"links"`
	password          string
}

type role struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	DomainID    *string        `json:"domain_id"`
	Description *string        `json:"description"`
	Options     map[string]any `json:"options"`
	Links       *links         `json:"links,omitempty"`
}

type service struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Type        string `json:"type"`
	Enabled     bool   `json:"enabled"`
	Description string `json:"description,omitempty"`
	Links       links  `json:"links"`
}

type endpoint struct {
	ID        string `json:"id"`
	Interface string `json:"interface"`
	RegionID  string `json:"region_id"`
	ServiceID string `json:"service_id"`
	URL       string `json:"url"`
	Enabled   bool   `json:"enabled"`
	Region    string `json:"region"`
	Links     links  `json:"links"`
}

type region struct {
	ID             string  `json:"id"`
	Description    string  `json:"description"`
	ParentRegionID *string `json:"parent_region_id"`
	Links          links   `json:"links"`
}

// grant is a role of a user in a project or a domain.
type grant struct{ user, target, role string }

type credential struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Description  *string         `json:"description"`
	UserID       string          `json:"user_id"`
	ProjectID    string          `json:"project_id"`
	System       *string         `json:"system"`
	ExpiresAt    *string         `json:"expires_at"`
	Unrestricted *bool           `json:"unrestricted"`
	Roles        []role          `json:"roles"`
	AccessRules  json.RawMessage `json:"access_rules,omitempty"`
	Secret       string          `json:"secret,omitempty"`
	Links        links           `json:"links"`
	secret       string
	expires      time.Time // zero: it never expires
}

// token is an issued token. Its roles are looked up at each use, as in Keystone, so removing a
// role takes effect at once.
type token struct {
	id            string
	methods       []string
	user          string
	project       string // or
	domain        string // or
	system        bool   // or none of the three: unscoped
	credential    string
	audits        []string
	issued, until time.Time
	revoked       bool
}

func (t *token) unscoped() bool { return t.project == "" && t.domain == "" && !t.system }
