// Package report keeps what was measured and prints it: a Result for each candidate and number of Services, a table, a picture. It measures
// nothing, so equal results give equal text.
//
//	a run ──> Result, part after part ──> Save ──> DIR/result-N-NAME.json ──> Load ──> Table, Bars
//
// A part that was not measured is nil, and Missing has the reason. A run that is cut short keeps the results that it has.
package report

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
)

// Result is all that was measured of one candidate with one number of Services.
type Result struct {
	Candidate string          `json:"candidate"`
	Command   []string        `json:"command"`
	Services  int             `json:"services"`
	Endpoints int             `json:"endpointsEach"`
	Began     time.Time       `json:"began"`
	Machine   measure.Machine `json:"machine"`
	Speeds    []float64       `json:"speeds,omitempty"` // speeds of the idle machine, before and after the candidate (measure.Speed)

	Start    *Start   `json:"start,omitempty"`
	Idle     *Idle    `json:"idle,omitempty"`
	Endpoint *Changes `json:"endpointChange,omitempty"`
	Service  *Changes `json:"newService,omitempty"`
	Traffic  *Traffic `json:"traffic,omitempty"`
	Roll     *Roll    `json:"roll,omitempty"`
	Churn    *Churn   `json:"churn,omitempty"`

	// Missing has the reason for each part that is not there, by its name.
	Missing map[string]string `json:"missing,omitempty"`
}

// Skip notes why a part is not there.
func (r *Result) Skip(part, reason string) {
	if r.Missing == nil {
		r.Missing = map[string]string{}
	}
	r.Missing[part] = reason
}

// Start is the way from an empty kernel to one that carries all Services. Times count from the launch of the process.
type Start struct {
	First  measure.Wait `json:"first"` // until any of the probes answers
	Last   measure.Wait `json:"last"`  // until each of the probes has answered
	Quiet  measure.Wait `json:"quiet"` // until the last CPU time before a rest of three seconds
	Probes int          `json:"probes"`
	Cost   measure.Cost `json:"cost"`   // until Quiet
	RSS    float64      `json:"rssMiB"` // after Quiet
	// Unanswered is how many of all Services did not answer after Quiet. They are not asked where a probe did not answer.
	Unanswered int `json:"unanswered"`
}

// Idle is a time in which nothing changes.
type Idle struct {
	Length measure.Seconds `json:"length"`
	Cost   measure.Cost    `json:"cost"`
}

// Changes are many changes of one kind, each made when the candidate rested.
type Changes struct {
	measure.Samples
	CPU measure.Seconds `json:"medianCPU"` // CPU time of one change, from the write until the candidate rests
	// Floor is when a watch that does nothing else had the same changes; nil without a watch.
	Floor *measure.Samples `json:"floor,omitempty"`
}

// Churn is a change of one endpoint among many others.
type Churn struct {
	Changes int              `json:"changes"`
	Length  measure.Seconds  `json:"length"`          // duration of the writing
	Probes  measure.Samples  `json:"probes"`          // until a changed endpoint answers, meanwhile
	Floor   *measure.Samples `json:"floor,omitempty"` // as in Changes
	CatchUp measure.Wait     `json:"catchUp"`         // from the last write until the candidate rests
	Cost    measure.Cost     `json:"cost"`            // cost of all changes, until the candidate rests
	RSS     float64          `json:"rssMiB"`
}

// Traffic is what packets through a Service cost, beside the same packets to an endpoint itself.
type Traffic struct {
	Connections Paths `json:"connections"` // a new connection for each request
	Requests    Paths `json:"requests"`    // all requests over one connection
}

// Paths compares the two ways to an endpoint.
type Paths struct {
	Service Path `json:"service"`
	Direct  Path `json:"direct"`
}

// Path is one way: requests that were answered one after the other.
type Path struct {
	Requests int             `json:"requests"`
	Length   measure.Seconds `json:"length"`
	P99      measure.Seconds `json:"p99"`
}

// Rate is the number of requests a second.
func (p Path) Rate() float64 {
	if p.Length == 0 {
		return 0
	}
	return float64(p.Requests) / float64(p.Length)
}

// Roll is a rolling update: all endpoints of one Service are replaced, in steps.
type Roll struct {
	Endpoints int          `json:"endpoints"`
	Writes    int          `json:"writes"`
	Done      measure.Wait `json:"done"` // from the last write until only new endpoints answer
	Asked     int          `json:"asked"`
	Failed    int          `json:"failed"` // connections of those asked, meanwhile
	Cost      measure.Cost `json:"cost"`   // cost of the whole update, until the candidate rests
}
