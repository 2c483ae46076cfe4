// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"strings"
	"sync"
	"time"
)

// Fate is what happens to the n-th write of a controller.
type Fate struct {
	Name string
	// Effect lets the write take effect. Only its answer is lost.
	Effect bool
	// Stops ends the process: it can send nothing more and receives nothing more. Another process
	// without memory replaces it.
	Stops bool
	// Late delays the process's watches for a while, from just before the write. Its caches are
	// behind then.
	Late bool
	// Status, if not 0, is the HTTP status of the answer, an error. Otherwise the connection breaks.
	Status int
	// Away lets the API server restart after the write, whose answer arrives: for a while each
	// connection to it ends, and each request is refused.
	Away bool
	// To restricts the counted writes to those that go to it; empty: all writes count.
	To string
	// Pauses holds all calls of the process for a while, the write before it takes effect among them.
	// Then they go on: the write is executed, and its answer arrives.
	Pauses bool
	// Again lets it also hit the next process, while that repairs what the first one left. It
	// hits one of that process's first writes, a different one in each life.
	Again bool
}

// early is how many first writes of the next process may be hit.
const early = 8

// pause is how long a paused process waits: by then another one has taken over what it owned.
const pause = 8 * time.Second

// next returns which write of the next process is hit, if write n of the previous one was; 0 is
// none.
func (f Fate) next(n int) int {
	if !f.Again {
		return 0
	}
	return 1 + (n-1)%early
}

// The fates of a write. Those from Refused on leave the process running.
var (
	StoppedBefore         = Fate{Name: "stopped before", Stops: true}
	StoppedAfter          = Fate{Name: "stopped after", Stops: true, Effect: true}
	StoppedTwice          = Fate{Name: "stopped after and again", Stops: true, Effect: true, Again: true}
	Refused               = Fate{Name: "refused"}
	AnswerLost            = Fate{Name: "answer lost", Effect: true}
	AnswerLostAndViewLate = Fate{Name: "answer lost and view late", Effect: true, Late: true, To: Kubernetes}
	FailedAfter           = Fate{Name: "done and answered with an error", Effect: true, Status: 500}
	Paused                = Fate{Name: "paused", Effect: true, Pauses: true}
	APIServerAway         = Fate{Name: "API server away", Effect: true, Away: true, To: TheCloud}
)

// counts reports whether the fate may hit c. It never hits Leases: their writes depend on the time only.
func (f Fate) counts(c Call) bool {
	return c.Write && (f.To == "" || f.To == c.To) && !strings.HasSuffix(c.What, " leases")
}

// aim is which write meets a fate. Controllers that run at once have one aim: the write is the n-th of all.
type aim struct {
	fate    Fate
	at      int // the number of the write that the fate hits; 0 is none
	mu      sync.Mutex
	counted int
}

// hits counts a call, and reports whether the fate hits it.
func (a *aim) hits(c Call) bool {
	if !a.fate.counts(c) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted++
	return a.counted == a.at
}

// Destinations of a call.
const (
	Kubernetes = "Kubernetes"
	TheCloud   = "cloud"
	Identity   = "identity" // logging in is no write, and reads no resources
)

// Call is one request of a process.
type Call struct {
	To        string
	What      string // verb and kind: "PATCH kuryrports/status", "CreatePorts"
	Write     bool
	Inventory bool // asks for all resources of the cloud
}

func (c Call) String() string { return c.To + ": " + c.What }
