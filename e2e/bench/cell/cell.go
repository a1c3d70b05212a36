// Package cell is what is known about one candidate with one number of Services, as values that are written to a file: a run that is cut
// short keeps the cells it has, and a table is made of whatever cells there are.
//
//	a run ──> Cell, part after part ──> Save ──> DIR/cell-N-NAME.json ──> Load ──> a table, a picture
//
// A part that was not measured is nil, and Missing says why where there was a reason. Times are seconds, memory is MiB.
package cell

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
)

// Seconds is a time in a file.
type Seconds float64

// Took is a time as Seconds.
func Took(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Cell is all that was measured of one candidate with one number of Services.
type Cell struct {
	Candidate string    `json:"candidate"`
	Command   []string  `json:"command"`
	Services  int       `json:"services"`
	Endpoints int       `json:"endpointsEach"`
	Began     time.Time `json:"began"`
	Machine   Machine   `json:"machine"`

	// Before and After are the machine's speed when nothing else was running.
	Before *Calibration `json:"before,omitempty"`
	After  *Calibration `json:"after,omitempty"`
	// LaunchesBy says how processes were counted: exactly, by the kernel's events, or all of the machine's.
	LaunchesBy string `json:"launchesCountedBy,omitempty"`

	Start    *Start   `json:"start,omitempty"`
	Kernel   *Kernel  `json:"kernel,omitempty"`
	Idle     *Idle    `json:"idle,omitempty"`
	Endpoint *Changes `json:"endpointChange,omitempty"`
	Service  *Changes `json:"newService,omitempty"`
	Churn    *Churn   `json:"churn,omitempty"`
	Roll     *Roll    `json:"roll,omitempty"`
	Packets  *Packets `json:"packets,omitempty"`
	Netlink  *Netlink `json:"netlink,omitempty"`
	Soak     *Soak    `json:"soak,omitempty"`
	Limit    *Limit   `json:"limit,omitempty"`
	Unasked  *Unasked `json:"startUnasked,omitempty"`
	Counted  *Counted `json:"startCounted,omitempty"`

	// Missing says why a part is not there, by its name.
	Missing map[string]string `json:"missing,omitempty"`
}

// Skip notes why a part is not there.
func (c *Cell) Skip(part, reason string) {
	if c.Missing == nil {
		c.Missing = map[string]string{}
	}
	c.Missing[part] = reason
}

// Machine is where a cell was measured.
type Machine struct {
	Where    string `json:"where"` // vm, netns, or nothing for the machine itself
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	Memory   int    `json:"memoryMiB"`
	IPTables string `json:"iptables,omitempty"`
	NFTables string `json:"nft,omitempty"`
}

// Calibration is how fast the machine was: what others do on it shows here.
type Calibration struct {
	Spins  float64 `json:"spinsPerMillisecond"` // rounds of a fixed loop, the median of several
	Launch Seconds `json:"launch"`              // of /bin/true, from its start to its end, the median of several
	Load   float64 `json:"load"`                // of the last minute, as the kernel counts it
}

// Wait is a time that was waited for. Over says that the limit came first, so it is the least that the time may be.
type Wait struct {
	Seconds Seconds `json:"seconds"`
	Over    bool    `json:"over,omitempty"`
}

// Cost is what a candidate used, with all processes it launched; Busy and SoftIRQ are the whole machine's.
type Cost struct {
	User     Seconds `json:"user"`
	System   Seconds `json:"system"` // in the kernel
	Launches float64 `json:"launches"`
	Busy     Seconds `json:"machineBusy"`
	SoftIRQ  Seconds `json:"machineSoftIRQ"`
}

// CPU is user and system time.
func (c Cost) CPU() Seconds { return c.User + c.System }

// Add is the sum of two costs.
func (c Cost) Add(d Cost) Cost {
	return Cost{User: c.User + d.User, System: c.System + d.System, Launches: c.Launches + d.Launches, Busy: c.Busy + d.Busy, SoftIRQ: c.SoftIRQ + d.SoftIRQ}
}

// Sub is what was used since d.
func (c Cost) Sub(d Cost) Cost {
	return Cost{User: c.User - d.User, System: c.System - d.System, Launches: c.Launches - d.Launches, Busy: c.Busy - d.Busy, SoftIRQ: c.SoftIRQ - d.SoftIRQ}
}

// Per is the cost of one of n things.
func (c Cost) Per(n int) Cost {
	if n == 0 {
		return Cost{}
	}
	f := float64(n)
	return Cost{User: c.User / Seconds(f), System: c.System / Seconds(f), Launches: c.Launches / f, Busy: c.Busy / Seconds(f), SoftIRQ: c.SoftIRQ / Seconds(f)}
}

// Memory is what a candidate holds.
type Memory struct {
	RSS  float64 `json:"rssMiB"`  // of all its processes
	Peak float64 `json:"peakMiB"` // the most that its first process ever held
}

// Start is the way from an empty kernel to one that carries all Services. Times count from the launch of the process.
type Start struct {
	First  Wait   `json:"first"`               // until any of the probes answers
	Server *Wait  `json:"apiServer,omitempty"` // until default/kubernetes takes connections; nil if it has no endpoint
	Last   Wait   `json:"last"`                // until each of the probes has answered
	Quiet  Wait   `json:"quiet"`               // until the last CPU time was used before a rest of three seconds
	Probes int    `json:"probes"`
	Cost   Cost   `json:"cost"` // until Quiet
	Memory Memory `json:"memory"`
	// Writing is the time of the calls that wrote sets, ipvs, addresses and rules, by the candidate's own metric; nil where it has none.
	Writing map[string]Seconds `json:"writing,omitempty"`
	// Unanswered is how many of all Services did not answer when all was quiet; they are not asked where a probe did not.
	Unanswered int `json:"unanswered"`
}

// Kernel is how much is in the kernel after the start, on the node.
type Kernel struct {
	Servers      int `json:"virtualServers"`
	Destinations int `json:"destinations"`
	Rules        int `json:"rules"` // of iptables and IPv4, in all tables
}

// Idle is a time in which nothing changes.
type Idle struct {
	Length Seconds `json:"length"`
	Cost   Cost    `json:"cost"`
	Drift  *Drift  `json:"drift,omitempty"`
}

// Drift is what becomes of a destination that somebody else took away.
type Drift struct {
	Back   Wait     `json:"back"`             // until it is in the kernel again
	Period *Seconds `json:"period,omitempty"` // of looking for such, by the candidate's own word
	Length *Seconds `json:"length,omitempty"` // of the time that was measured until then
	Cost   *Cost    `json:"cost,omitempty"`   // in that time
}

// Samples are times of the same thing, in the order they were taken; those that the limit ended hold the limit.
type Samples struct {
	Times  []Seconds `json:"times"`
	Missed int       `json:"missed,omitempty"`
	P50    Seconds   `json:"p50"`
	P90    Seconds   `json:"p90"`
	P99    Seconds   `json:"p99"`
	Halves float64   `json:"halves"` // see stats.Halves: their noise
}

// Summarize sums up waits.
func Summarize(waits []Wait) Samples {
	s := Samples{Times: make([]Seconds, len(waits))}
	values := make([]float64, len(waits))
	for i, w := range waits {
		s.Times[i], values[i] = w.Seconds, float64(w.Seconds)
		if w.Over {
			s.Missed++
		}
	}
	s.P50, s.P90, s.P99 = Seconds(stats.Percentile(values, 50)), Seconds(stats.Percentile(values, 90)), Seconds(stats.Percentile(values, 99))
	s.Halves = stats.Halves(values)
	return s
}

// Percentile is one of the three as a Wait. It is over where samples that the limit ended reach down to it.
func (s Samples) Percentile(p float64) Wait {
	values := make([]float64, len(s.Times))
	for i, t := range s.Times {
		values[i] = float64(t)
	}
	answered := float64(len(s.Times)-s.Missed) / float64(max(len(s.Times), 1)) * 100
	return Wait{Seconds: Seconds(stats.Percentile(values, p)), Over: p > answered}
}

// Changes are many changes of one kind, each made when the candidate was quiet.
type Changes struct {
	Samples
	Each   Cost    `json:"each"`             // of one, from the write until the candidate is quiet again
	Length Seconds `json:"length,omitempty"` // how long that was, for one
	// CPU and Launches are the medians of all: now and then a change meets what the candidate does at rest.
	CPU      Seconds `json:"medianCPU"`
	Launches float64 `json:"medianLaunches"`
	// Told is when a watch alone had the same changes; nil where nothing was watched.
	Told *Samples `json:"told,omitempty"`
	// Repeated is the same measured a second time, because the first was noisy.
	Repeated *Changes `json:"repeated,omitempty"`
}

// Noisy is the difference between two halves from which on a part is measured a second time.
const Noisy = 0.25

// Calmer is the less noisy of the two measurements, where there are two.
func (c *Changes) Calmer() *Changes {
	if c != nil && c.Repeated != nil && c.Repeated.Missed <= c.Missed && c.Repeated.Halves < c.Halves {
		return c.Repeated
	}
	return c
}

// Churn is what becomes of a change while many others are made.
type Churn struct {
	Wanted  float64  `json:"wantedPerSecond"`
	Changes int      `json:"changes"`
	Length  Seconds  `json:"length"`         // of the writing
	Probes  Samples  `json:"probes"`         // of a Service that changes meanwhile
	Told    *Samples `json:"told,omitempty"` // the same changes, as a watch alone has them
	// CatchUp is the time from the last write until the candidate is quiet: its backlog.
	CatchUp Wait   `json:"catchUp"`
	Each    Cost   `json:"each"` // of one change, from the first until the candidate is quiet
	Memory  Memory `json:"memory"`
}

// Soak is a long time's worth of changes, and what the candidate holds meanwhile.
type Soak struct {
	Wanted  int     `json:"wanted"`
	Changes int     `json:"changes"`
	Length  Seconds `json:"length"`
	Slowest Seconds `json:"slowestProbe"`
	Memory  []Held  `json:"memory"`
}

// Held is the RSS of all processes at a time since the beginning.
type Held struct {
	At  Seconds `json:"at"`
	RSS float64 `json:"rssMiB"`
}

// Tenths are the RSS at the end of the first tenth of the time, and the median of the last one. There are none with fewer than ten samples.
func (s *Soak) Tenths() (first, last float64, known bool) {
	n := len(s.Memory)
	if n < 10 {
		return 0, 0, false
	}
	var end []float64
	for _, h := range s.Memory[n-n/10:] {
		end = append(end, h.RSS)
	}
	return s.Memory[n/10].RSS, stats.Median(end), true
}

// Roll is a Service whose endpoints are all replaced, in steps.
type Roll struct {
	Endpoints int  `json:"endpoints"`
	Writes    int  `json:"writes"`
	Done      Wait `json:"done"` // from the answer to the last write until new connections reach new endpoints only
	Asked     int  `json:"asked"`
	Failed    int  `json:"failed"` // of those asked, meanwhile
	Cost      Cost `json:"cost"`   // of all of it, until the candidate is quiet
}

// Packets is what the data plane costs, and the same without a proxy in the way. Connections go to Services all over, in turn.
type Packets struct {
	Rate          Speed `json:"connections"`       // a second, one after the other
	RateDirect    Speed `json:"connectionsDirect"` // the same, to endpoints
	Request       Speed `json:"requests"`          // a second over one connection that stays, one after the other
	RequestDirect Speed `json:"requestsDirect"`
}

// Speed is how many of something were done a second, the median of several rounds, and how far these differ.
type Speed struct {
	Median float64   `json:"median"`
	Spread float64   `json:"spread"`
	Rounds []float64 `json:"rounds"`
}

// NewSpeed sums up rounds.
func NewSpeed(rounds []float64) Speed {
	return Speed{Median: stats.Median(rounds), Spread: stats.Spread(rounds...), Rounds: rounds}
}

// Counted is another start, on a node of its own, with all counted that goes over netlink. Its times say how much the counting disturbs.
type Counted struct {
	// Programmed is the time until the last message that asks the kernel for a change, nil without any: whatever was programmed otherwise does
	// not show.
	Programmed *Wait   `json:"programmed,omitempty"`
	Last       Wait    `json:"last"`  // as in Start
	Quiet      Wait    `json:"quiet"` // as in Start
	Cost       Cost    `json:"cost"`
	Traffic    Traffic `json:"traffic"`
	// Writing is how long the kernel was at changes, from each datagram to the last answer, by table: ipvs, sets, addresses, links,
	// routes, rules, flows.
	Writing map[string]Seconds `json:"writing"`
	Dropped int                `json:"dropped,omitempty"` // datagrams that came too fast to be counted
}

// Limit is how fast the rows can be written that the candidate had written after its start: packed beforehand, unchecked, to an empty kernel.
type Limit struct {
	Runs   int       `json:"runs"` // the fastest of so many
	Tables []Written `json:"tables"`
	Sum    Written   `json:"sum"`
}

// Written is one table of rows, or all.
type Written struct {
	Name     string  `json:"name"`
	Rows     int     `json:"rows"`
	Messages int     `json:"messages"`
	Bytes    int     `json:"bytes"`
	Wall     Seconds `json:"wall"`
	CPU      Seconds `json:"cpu"`
	// Rooms is what the rooms of kube-ipvs take for the same rows when nothing else goes on; 0 where they were not asked.
	Rooms Seconds `json:"rooms,omitempty"`
}

// Unasked is another start, on another node, of whose Services none is asked before all is quiet: of several the one in which writing took
// the middle time.
type Unasked struct {
	Quiet   Wait               `json:"quiet"`
	Cost    Cost               `json:"cost"`              // until Quiet
	Writing map[string]Seconds `json:"writing,omitempty"` // as of a Start
	Spread  float64            `json:"spread"`            // how much longer writing took in the longest than in the shortest, as a share
}

// Wrote is what writing took, but for rules, which processes write.
func (u *Unasked) Wrote() (sum Seconds) {
	for name, took := range u.Writing {
		if name != "rules" {
			sum += took
		}
	}
	return sum
}

// Netlink is what goes over netlink sockets of the node's network namespace, whoever has them open.
type Netlink struct {
	Change  Traffic `json:"change"`  // of one change of an endpoint
	Service Traffic `json:"service"` // of one new Service
	Idle    Traffic `json:"idle"`    // of Length
	Length  Seconds `json:"idleLength"`
	Dropped int     `json:"dropped,omitempty"` // datagrams that came too fast to be counted
}

// Traffic is a number of messages and bytes, by the name of the family: NETLINK_GENERIC, say.
type Traffic map[string]Volume

// Volume is what went to the kernel, and what came from it.
type Volume struct {
	Messages     float64 `json:"messages"`
	Bytes        float64 `json:"bytes"`
	FromMessages float64 `json:"fromKernelMessages"`
	FromBytes    float64 `json:"fromKernelBytes"`
}

// Sum is the volume of all families, both ways.
func (t Traffic) Sum() (messages, bytes float64) {
	for _, v := range t {
		messages += v.Messages + v.FromMessages
		bytes += v.Bytes + v.FromBytes
	}
	return messages, bytes
}

// Per is the traffic of one of n things.
func (t Traffic) Per(n int) Traffic {
	out := Traffic{}
	for family, v := range t {
		f := float64(max(n, 1))
		out[family] = Volume{Messages: v.Messages / f, Bytes: v.Bytes / f, FromMessages: v.FromMessages / f, FromBytes: v.FromBytes / f}
	}
	return out
}
