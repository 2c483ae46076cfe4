// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// What the controller writes on ports of a pool, and reads there.
const fieldOwner = client.FieldOwner(v1.FieldOwnerPool) // as the controller's

// atOnce is how many ports are worked on at once; the backend has its own bound.
const atOnce = 4

// Adopter carries a plan out. It keeps nothing: stopped between any two steps it
// may be run again, and what it had claimed by then the controller adopts or
// collects.
type Adopter struct {
	Cloud  sdn.Adoption
	Client client.Client
	Now    func() time.Time
}

// Result counts what was done.
type Result struct {
	Adopted, Deleted int
	Skipped          int // ports that another user changed or took meanwhile
}

// Do executes actions, each regardless of the results of the others. It returns the completed
// actions, with the errors of the rest.
func (a *Adopter) Do(ctx context.Context, actions []Action) (Result, error) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	var mu sync.Mutex
	var sum Result
	var faults []error
	refused := a.makePools(ctx, actions)
	for _, action := range actions {
		g.Go(func() error {
			err := ctx.Err()
			if err == nil {
				err = a.one(ctx, action, refused)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, sdn.ErrConflict), errors.Is(err, sdn.ErrNotFound):
				sum.Skipped++
				ctrl.LoggerFrom(ctx).Info("left a port that has changed meanwhile", "port", action.Port.ID, "because", err.Error())
			case err != nil:
				faults = append(faults, err)
			case action.Verb == Take:
				sum.Adopted++
			case action.Verb == Delete:
				sum.Deleted++
			}
			return nil
		})
	}
	_ = g.Wait()
	return sum, errors.Join(faults...)
}

// makePools makes the objects of the pools before the first port is claimed. If this ended between
// claiming a port and recording it, a port without an existing owner would be collected. The
// controller sets the levels.
func (a *Adopter) makePools(ctx context.Context, actions []Action) (refused map[string]error) {
	refused = map[string]error{}
	done := map[string]bool{}
	for i := range actions {
		name := actions[i].Pool()
		if actions[i].Verb != Take || done[name] {
			continue
		}
		done[name] = true
		object := &v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.KuryrPortPoolSpec{Key: actions[i].Key, Batch: 1}}
		if err := a.Client.Create(ctx, object, fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
			refused[name] = fmt.Errorf("creating KuryrPortPool %s: %w", name, err)
		}
	}
	return refused
}

func (a *Adopter) one(ctx context.Context, action Action, refused map[string]error) error {
	log := ctrl.LoggerFrom(ctx).WithValues("port", action.Port.ID)
	switch action.Verb {
	case Take:
		if err := refused[action.Pool()]; err != nil {
			return err
		}
		if err := a.take(ctx, action); err != nil {
			return err
		}
		log.Info("adopted port", "pool", action.Pool())
	case Delete:
		if err := a.Cloud.DeleteStray(ctx, action.Port.ID); err != nil {
			return err
		}
		log.Info("deleted port", "because", action.Why)
	case Leave:
	}
	return nil
}

// take claims a port and then writes it down: from the claim on the controller
// would do the rest.
func (a *Adopter) take(ctx context.Context, action Action) error {
	if err := a.Cloud.Claim(ctx, action.Port.ID, sdn.Owner{Kind: sdn.KindPool, Name: action.Pool()}); err != nil {
		return err
	}
	object := a.object(action)
	if err := a.Client.Create(ctx, object, fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating KuryrPort %s of a port that is claimed; the controller will adopt or collect it: %w", object.Name, err)
	}
	return nil
}

// object returns the KuryrPort of an adopted port, which is free. It has the port's current
// properties, security groups included: the controller sets the pool's groups before a pod gets the
// port. The end of its last pod is unknown, so the port rests from now on.
func (a *Adopter) object(action Action) *v1.KuryrPort {
	p, key := action.Port, action.Key
	p.Arrange(key.SubnetIDs, action.more)
	vif := *p.VIF.DeepCopy()
	if key.VIFType != "" {
		vif.Type = key.VIFType
	}
	return &v1.KuryrPort{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.ID, Finalizers: []string{v1.PortFinalizer},
			Annotations: map[string]string{v1.ReleasedAnnotation: a.Now().UTC().Format(time.RFC3339Nano)},
			Labels:      map[string]string{v1.PortStatusLabel: string(v1.PortRecycling)},
		},
		Spec: v1.KuryrPortSpec{
			Pool: action.Pool(), NodeName: action.Node, ProjectID: p.ProjectID, NetworkID: p.NetworkID,
			SecurityGroupIDs: slices.Clone(p.SecurityGroupIDs), VIF: vif,
		},
	}
}
