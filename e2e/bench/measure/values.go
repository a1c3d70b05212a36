package measure

import "time"

// Seconds is a time in a file.
type Seconds float64

// Took is a duration as Seconds.
func Took(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Wait is a time that the benchmark waited. Over means that the limit came first, so the true time is at least this long.
type Wait struct {
	Seconds Seconds `json:"seconds"`
	Over    bool    `json:"over,omitempty"`
}

// Since is the Wait from start to at.
func Since(start, at time.Time) Wait { return Wait{Seconds: Took(max(at.Sub(start), 0))} }

// Cost is CPU time of a program and of every process that it launched.
type Cost struct {
	User   Seconds `json:"user"`
	System Seconds `json:"system"` // in the kernel
}

// CPU is user and system time.
func (c Cost) CPU() Seconds { return c.User + c.System }

// Sub is what was used since d.
func (c Cost) Sub(d Cost) Cost { return Cost{User: c.User - d.User, System: c.System - d.System} }

// Machine is where a result was measured.
type Machine struct {
	Where    string `json:"where"` // vm, netns, or empty for the machine itself
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	Memory   int    `json:"memoryMiB"`
	IPTables string `json:"iptables,omitempty"`
	NFTables string `json:"nft,omitempty"`
}

// Samples are times of the same action, in the order in which they were taken. A sample that the limit ended holds the limit.
type Samples struct {
	Times  []Seconds `json:"times"`
	Missed int       `json:"missed,omitempty"` // samples that the limit ended
	Halves float64   `json:"halves"`           // the noise, as Halves defines it
}

// Noisy is the difference between the two halves of a series above which its figures are marked.
const Noisy = 0.25

// Summarize sums up waits.
func Summarize(waits []Wait) Samples {
	s := Samples{Times: make([]Seconds, len(waits))}
	for i, w := range waits {
		s.Times[i] = w.Seconds
		if w.Over {
			s.Missed++
		}
	}
	s.Halves = Halves(s.Times)
	return s
}

// Percentile is over where samples that the limit ended reach down to it.
func (s Samples) Percentile(p float64) Wait {
	answered := float64(len(s.Times)-s.Missed) / float64(max(len(s.Times), 1)) * 100
	return Wait{Seconds: Percentile(s.Times, p), Over: p > answered}
}
