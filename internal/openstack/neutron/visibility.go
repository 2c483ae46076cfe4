// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Neutron answers 404, and lists nothing, both for missing objects and for objects that the
// credential may not see: because its role was removed, it belongs to another project, or its
// catalogue names another region.

// sight is a project and a network as a credential of a project may see them.
type sight struct{ own, project, network string }

// sightAge is the lifetime of an answer: Kuryr asks about many ports of one project at the same
// time.
const sightAge = 10 * time.Second

// OwnProject implements sdn.Visibility.
func (b *Neutron) OwnProject(ctx context.Context) (string, error) { return b.Project(ctx) }

// Sees implements sdn.Visibility. Its own project a credential sees without a request.
func (b *Neutron) Sees(ctx context.Context, projectID, networkID string) error {
	own, err := b.Project(ctx)
	if err != nil {
		return fmt.Errorf("checking whether the credential sees ports of project %s: %w", projectID, err)
	}
	at := sight{own, projectID, networkID}
	if projectID == own {
		at.project = ""
	}
	if at.project == "" && at.network == "" {
		return nil
	}
	denied, err := b.sights.Get(ctx, at, sightAge, func(ctx context.Context) (error, error) {
		err := b.lookAtProject(ctx, at.project)
		if err == nil {
			err = b.lookAtNetwork(ctx, at.network)
		}
		if errors.Is(err, sdn.ErrForbidden) {
			return err, nil
		}
		return nil, err
	})
	if err != nil {
		return fmt.Errorf("checking whether the credential sees ports of project %s: %w", projectID, err)
	}
	return denied
}

// lookAtProject requests any port of another project. If there is none, the project may have none:
// then only the cloud's admin may read the other project's quota, and the admin sees all ports.
func (b *Neutron) lookAtProject(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	var ports portsBody
	query := url.Values{"project_id": {id}, "fields": {"id"}, "limit": {"1"}}
	if err := b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"ports"}, Query: query, Out: &ports}); err != nil {
		return fmt.Errorf("looking for ports of project %s: %w", id, err)
	}
	if len(ports.Ports) > 0 {
		return nil
	}
	err := b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"quotas", id}, Subject: noSuchPath})
	switch {
	case hidden(err):
		return fmt.Errorf("%w: Neutron shows this credential no port of project %s. The credential may have lost a role, or belong to another project", sdn.ErrForbidden, id)
	case err != nil:
		return fmt.Errorf("reading the quota of project %s: %w", id, err)
	}
	return nil
}

// lookAtNetwork asks for a network.
func (b *Neutron) lookAtNetwork(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	_, err := get[resource](ctx, b, networkKind, id, "id")
	switch {
	case errors.Is(err, sdn.ErrNotFound):
		return fmt.Errorf("%w: Neutron does not show this credential network %s of the ports. The credential may have lost a role, or be for another project or region", sdn.ErrForbidden, id)
	case err != nil:
		return fmt.Errorf("reading network %s: %w", id, err)
	}
	return nil
}
