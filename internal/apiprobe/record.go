package apiprobe

import "time"

// Probes in a row that change the state of an endpoint.
const (
	failuresToFail = 3
	answersToHold  = 2
)

// record is the state of one endpoint, as far as its probes decide it.
type record struct {
	// failing: the endpoint failed failuresToFail probes in a row, and did not answer answersToHold
	// in a row since then.
	failing bool
	// reason is the error of the probe with which the endpoint began to fail.
	reason string
	// against counts the latest probes in a row that contradict failing.
	against int
}

// add takes the result of a probe; nil is an answer. It reports whether failing changed.
func (r *record) add(err error) (changed bool) {
	if (err != nil) == r.failing {
		r.against = 0
		return false
	}
	most := failuresToFail
	if r.failing {
		most = answersToHold
	}
	if r.against++; r.against < most {
		return false
	}
	r.failing, r.reason, r.against = err != nil, "", 0
	if err != nil {
		r.reason = err.Error()
	}
	return true
}

// doubtPause is the time between two probes while the state of an endpoint is in doubt: while the
// latest probe contradicts it.
const doubtPause = time.Second

// pause returns the time until the next probe of the endpoint.
func (r *record) pause(period time.Duration) time.Duration {
	if r.against > 0 {
		return min(doubtPause, period)
	}
	return period
}
