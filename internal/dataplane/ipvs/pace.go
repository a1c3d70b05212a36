package ipvs

import (
	"time"
)

// pace holds back changes of schedulers. For each the kernel waits until every CPU has
// let go of the old one (synchronize_rcu in ip_vs_edit_service, net/netfilter/ipvs/ip_vs_ctl.c),
// 5 to 40 ms on a machine with several, under the lock that all of IPVS is changed by.
// A thousand in one call would not be answered in time, and an endpoint that changes
// meanwhile would wait for all of them. So they go out in small groups that grow while
// they turn out to be cheap, for a bounded time in each pass; the rest waits for the
// next one, and other changes pass in between.
type pace struct {
	quota int // changes of schedulers in one write
	left  int // of it
	held  int // rows that were not let through
}

// The bounds: a write should take between quick and slow, a pass no longer than
// pacePass for all of them.
const (
	firstQuota = 16
	mostQuota  = 512
	quick      = 25 * time.Millisecond
	slow       = 250 * time.Millisecond
	pacePass   = 500 * time.Millisecond
)

// begin allows another group.
func (p *pace) begin() {
	if p.quota == 0 {
		p.quota = firstQuota
	}
	p.left, p.held = p.quota, 0
}

// admit tells whether one more may go.
func (p *pace) admit() bool {
	if p.left == 0 {
		p.held++
		return false
	}
	p.left--
	return true
}

// adapt learns from how long a group took.
func (p *pace) adapt(took time.Duration) {
	switch {
	case took < quick:
		p.quota = min(2*p.quota, mostQuota)
	case took > slow:
		p.quota = max(p.quota/2, 1)
	}
}
