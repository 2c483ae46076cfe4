// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of notes.
const (
	ReasonAddress       = "ClusterIPUnusable" // no subnet for cluster IPs contains a cluster IP
	ReasonSubnet        = "SubnetNotShown"    // the cloud does not show a subnet of the configuration
	ReasonInvalid       = "InvalidValue"      // a field or annotation with an invalid value
	ReasonContradiction = "Contradiction"     // two values that exclude each other
	ReasonUnknown       = "UnknownAnnotation" // most likely a misspelled annotation
	ReasonUnsupported   = "Unsupported"       // Kuryr does not support it
	ReasonNoEffect      = "NoEffect"          // it has no effect with Kuryr
	ReasonNoNetwork     = "NoExternalNetwork" // no network for a floating IP is known
	ReasonLeftOut       = "EndpointsLeftOut"  // endpoints that are not members
	ReasonNotAllowed    = "NotAllowed"        // the configuration does not let Services name it
	ReasonTaken         = "ExternalIPTaken"   // an older Service has that external IP and port
	ReasonNotChanged    = "NotChanged"        // it is so in the cloud for what is made later only
)

// Note is a message for the author of a Service.
type Note struct {
	Reason string
	Field  string // of the Service, such as spec.externalIPs; endpoints; namespace, or a field of it
	Text   string // the problem, and what to do
	Info   bool   // the Service works nevertheless
	Values string // the values of this Service in Text
}

// String formats the note as one line.
func (n Note) String() string { return n.Reason + ": " + n.Field + ": " + n.Text }

// ID identifies a note by its reason, its field and its values, not by its words. The ID of a note
// about left out endpoints does not depend on the values: these endpoints may change at any time.
func (n Note) ID() string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %t", n.Field, n.Info)
	if n.Reason != ReasonLeftOut {
		fmt.Fprintf(h, " %s", n.Values)
	}
	return fmt.Sprintf("%s:%08x", n.Reason, h.Sum32())
}

// maxIDs is how many notes are recorded as reported. Further notes get no Events.
const maxIDs = 1000

// IDs returns the IDs of notes as one word.
func IDs(notes []Note) string {
	ids := map[string]bool{}
	for _, n := range notes[:min(len(notes), maxIDs)] {
		ids[n.ID()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(ids)), ",")
}

// Fresh returns the notes that reported does not contain. IDs has written reported.
func Fresh(notes []Note, reported string) []Note {
	before := strings.Split(reported, ",")
	return slices.DeleteFunc(slices.Clone(notes[:min(len(notes), maxIDs)]), func(n Note) bool { return slices.Contains(before, n.ID()) })
}

// warn notes that the Service does not get what it requests.
func (p *planner) warn(reason, field, format string, args ...any) {
	p.notes = append(p.notes, Note{Reason: reason, Field: field, Text: fmt.Sprintf(format, args...), Values: fmt.Sprint(args...)})
}

// tell notes a request that has no effect.
func (p *planner) tell(field, format string, args ...any) {
	p.notes = append(p.notes, Note{Reason: ReasonNoEffect, Field: field, Text: fmt.Sprintf(format, args...), Info: true, Values: fmt.Sprint(args...)})
}

// Claim is a port of an external IP. Only one Service can have it.
type Claim struct {
	Address  netip.Addr
	Protocol corev1.Protocol
	Port     int32
}

// String formats the claim as one word. Equal claims give equal words.
func (c Claim) String() string { return fmt.Sprintf("%s,%s,%d", c.Address, c.Protocol, c.Port) }

// Claims returns the ports of external IPs that nodes are to forward to a Service, without
// duplicates. It omits addresses of families that the Service has no cluster IP of.
func Claims(svc *corev1.Service) []Claim {
	if len(svc.Spec.ExternalIPs) == 0 || !Wanted(svc) {
		return nil
	}
	families := map[int]bool{}
	for _, ip := range ClusterIPs(svc) {
		families[ip.BitLen()] = true
	}
	var claims []Claim
	seen := map[netip.Addr]bool{}
	for _, text := range svc.Spec.ExternalIPs {
		ip, err := ParseAddr(text)
		if err != nil || !families[ip.BitLen()] || seen[ip] {
			continue
		}
		seen[ip] = true
		for _, port := range svc.Spec.Ports {
			claims = append(claims, Claim{ip, cmp.Or(port.Protocol, corev1.ProtocolTCP), port.Port})
		}
	}
	return claims
}

// Older orders Services by precedence for a shared claim: the first one gets it.
func Older(a, b *corev1.Service) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// rivals notes the claims that older Services have.
func (p *planner) rivals() {
	older := slices.DeleteFunc(slices.Clone(p.Rivals), func(r *corev1.Service) bool { return Older(r, p.Service) >= 0 })
	slices.SortFunc(older, Older)
	holders := map[Claim]*corev1.Service{}
	for _, r := range older {
		for _, c := range Claims(r) {
			if holders[c] == nil {
				holders[c] = r
			}
		}
	}
	for _, c := range Claims(p.Service) {
		if h := holders[c]; h != nil {
			p.warn(ReasonTaken, "spec.externalIPs", "%s at %s %d belongs to Service %s/%s, which is older: use another address or port", c.Address, c.Protocol, c.Port, h.Namespace, h.Name)
		}
	}
}
