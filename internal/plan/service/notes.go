// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
	"strings"
)

// Reasons of notes.
const (
	ReasonAddress       = "ClusterIPUnusable" // a cluster IP is in no subnet for them
	ReasonSubnet        = "SubnetNotShown"    // the cloud does not show a subnet of the configuration
	ReasonInvalid       = "InvalidValue"      // a field or annotation that makes no sense
	ReasonContradiction = "Contradiction"     // two that do not go together
	ReasonUnknown       = "UnknownAnnotation" // most likely misspelled
	ReasonUnsupported   = "Unsupported"       // Kuryr cannot do it
	ReasonNoEffect      = "NoEffect"          // it makes no difference with Kuryr
	ReasonNoNetwork     = "NoExternalNetwork" // there is no network for a floating IP
	ReasonLeftOut       = "EndpointsLeftOut"  // endpoints that are no members
	ReasonNotAllowed    = "NotAllowed"        // the configuration does not let Services name it
	ReasonTaken         = "ExternalIPTaken"   // an older Service has an external IP at that port
)

// Note is something that the author of a Service should know.
type Note struct {
	Reason string
	Field  string // of the Service, as in spec.externalIPs, or endpoints
	Text   string // what is so, and what to do
	Info   bool   // all the Service needs is there nevertheless
}

// String is the note as one line.
func (n Note) String() string { return n.Reason + ": " + n.Field + ": " + n.Text }

// OfService reports whether the field is one of the Service itself.
func (n Note) OfService() bool { return n.Field != endpointsField }

// In reports whether text, lines that String has written, has the note already.
// Which endpoints are left out may change at any time, and makes no new note.
func (n Note) In(text string) bool {
	line := n.String()
	if n.Reason == ReasonLeftOut {
		line = n.Reason + ": " + n.Field + ": "
	}
	return strings.HasPrefix(text, line) || strings.Contains(text, "\n"+line)
}

func compareNotes(a, b Note) int {
	return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Text, b.Text))
}

// warn notes that the Service does not get what it asks for.
func (p *planner) warn(reason, field, format string, args ...any) {
	p.notes = append(p.notes, Note{Reason: reason, Field: field, Text: fmt.Sprintf(format, args...)})
}

// tell notes what makes no difference.
func (p *planner) tell(field, format string, args ...any) {
	p.notes = append(p.notes, Note{Reason: ReasonNoEffect, Field: field, Text: fmt.Sprintf(format, args...), Info: true})
}
