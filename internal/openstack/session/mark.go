// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// What marks a resource as a cluster's, in its description and as tags.
const (
	ClusterMark = "kuryr.cluster="
	OwnerMark   = "kuryr.owner="
	// parentMark is of a port that another one lets pass by its address pairs. It
	// is in the description only: the parent has to be known when the port goes.
	parentMark = "kuryr.parent="
	// MaxDescription is Neutron's own bound.
	MaxDescription = 255
)

// Mark names the owner of a resource. The cluster is empty if the resource is not Kuryr's.
type Mark struct {
	Cluster string
	Owner   sdn.Owner
	Parent  string // port whose address pairs let it pass; empty: none
}

// Tags are the mark for a resource that has tags.
func (m Mark) Tags() []string {
	return []string{ClusterMark + m.Cluster, OwnerMark + m.Owner.String()}
}

// Description is the mark for a resource that has a description: ErrInvalid if it
// cannot be read again, or is too long.
func (m Mark) Description() (string, error) {
	words := m.Tags()
	if m.Parent != "" {
		words = append(words, parentMark+m.Parent)
	}
	s := strings.Join(words, " ")
	if back := ParseMark(s); back != m || m.Owner == (sdn.Owner{}) {
		return "", fmt.Errorf("owner %q and parent port %q contain characters that a description cannot hold: %w", m.Owner, m.Parent, sdn.ErrInvalid)
	}
	if len(s) > MaxDescription {
		return "", fmt.Errorf("the mark of owner %q has %d bytes, more than Neutron's %d: %w", m.Owner, len(s), MaxDescription, sdn.ErrInvalid)
	}
	return s, nil
}

// ParseMark reads a description. Other words beside the mark are a person's and
// do no harm; two clusters are nobody's.
func ParseMark(description string) Mark {
	var m Mark
	for _, word := range strings.Fields(description) {
		if id, ok := strings.CutPrefix(word, ClusterMark); ok {
			if m.Cluster != "" || id == "" {
				return Mark{}
			}
			m.Cluster = id
		}
		if name, ok := strings.CutPrefix(word, OwnerMark); ok {
			m.Owner, _ = sdn.ParseOwner(name) // an owner nobody can read is none known
		}
		if id, ok := strings.CutPrefix(word, parentMark); ok {
			m.Parent = id
		}
	}
	if m.Cluster == "" {
		return Mark{}
	}
	return m
}

// Unmarked is a description without any mark.
func Unmarked(description string) string {
	words := slices.DeleteFunc(strings.Fields(description), func(word string) bool {
		return strings.HasPrefix(word, ClusterMark) || strings.HasPrefix(word, OwnerMark) || strings.HasPrefix(word, parentMark)
	})
	return strings.Join(words, " ")
}
