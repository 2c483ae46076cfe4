// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

// standard is what all resources share; embedded in each row type. JSON names
// are those on the wire. What a kind does not have (api.json) is not shown.
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

// newStandard is what a resource begins with.
func (c *call) newStandard(project string) standard {
	now := c.stamp()
	return standard{
		ID: c.NewID(), ProjectID: project, TenantID: project,
		Tags: []string{}, CreatedAt: now, UpdatedAt: now,
	}
}

// touch counts a change of the row, as Neutron's revision plugin does at each
// write to the database.
func (s *standard) touch(c *call) {
	s.RevisionNumber++
	s.UpdatedAt = c.stamp()
}
