// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

// standard holds the attributes that all resources share. Each row type embeds it. The JSON names
// are those of the API. Attributes that api-*.json does not list for a kind are not shown.
type standard struct {
	ID             string   `json:"id"`
	ProjectID      string   `json:"project_id"`
	TenantID       string   `json:"tenant_id"`
	Description    string   `json:"description"`
	Tags           []string `json:"tags"` // never changed in place
	RevisionNumber int      `json:"revision_number"`
	CreatedAt      string   `json:"created_at"`
	UpdatedAt      string   `json:"updated_at"`
}

func (s *standard) common() *standard { return s }

// resource is any row.
type resource interface{ common() *standard }

func commonOf[T any](row *T) *standard { return any(row).(resource).common() }

// newStandard returns the standard attributes of a new resource.
func (c *call) newStandard(project string) standard {
	now := c.stamp()
	return standard{
		ID: c.NewID(), ProjectID: project, TenantID: project,
		Tags: []string{}, CreatedAt: now, UpdatedAt: now,
	}
}

// touch counts a change of the row. Neutron's revision plugin does so at each write to the
// database.
func (s *standard) touch(c *call) {
	s.RevisionNumber++
	s.UpdatedAt = c.stamp()
}
