// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

// Fate is what befalls the n-th write of a controller.
type Fate struct {
	Name string
	// Effect lets the write be carried out; only its answer is not known.
	Effect bool
	// Stops ends the process: it does nothing more and is told nothing more,
	// and another one, which remembers nothing, takes its place.
	Stops bool
	// Late keeps what the process watches from it for a while, from just before
	// the write on: its caches are behind.
	Late bool
	// To is where the writes go that count; if empty, all do.
	To string
	// Again lets it befall the next process, too, while that makes good what the
	// first one left: at one of its first writes, another one in each life.
	Again bool
}

// early is among how many of its first writes one of the next process is hit.
const early = 8

// next returns the number of the write that is hit of the process after the one
// whose n-th write was; 0 is none.
func (f Fate) next(n int) int {
	if !f.Again {
		return 0
	}
	return 1 + (n-1)%early
}

// What may befall a write. The three from Refused on leave the process running.
var (
	StoppedBefore         = Fate{Name: "stopped before", Stops: true}
	StoppedAfter          = Fate{Name: "stopped after", Stops: true, Effect: true}
	StoppedTwice          = Fate{Name: "stopped after and again", Stops: true, Effect: true, Again: true}
	Refused               = Fate{Name: "refused"}
	AnswerLost            = Fate{Name: "answer lost", Effect: true}
	AnswerLostAndViewLate = Fate{Name: "answer lost and view late", Effect: true, Late: true, To: Kubernetes}
)

// counts reports whether c is one of the writes that the fate may befall.
func (f Fate) counts(c Call) bool { return c.Write && (f.To == "" || f.To == c.To) }

// Where a call goes.
const (
	Kubernetes = "Kubernetes"
	TheCloud   = "cloud"
	Identity   = "identity" // logging in is no write, and asks nothing of what there is
)

// Call is one request of a process.
type Call struct {
	To        string
	What      string // verb and kind: "PATCH kuryrports/status", "CreatePorts"
	Write     bool
	Inventory bool // asks for all that there is in the cloud
}

func (c Call) String() string { return c.To + ": " + c.What }
