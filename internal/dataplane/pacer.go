package dataplane

import (
	"context"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// A Pacer bounds rows that are costly for the kernel, such as a change of a scheduler. For each of
// these the kernel waits until no CPU uses the old scheduler (synchronize_rcu in
// ip_vs_edit_service, net/netfilter/ipvs/ip_vs_ctl.c). That takes 5 to 40 ms on a machine with
// several CPUs, under the lock for all changes of IPVS. A thousand in one call would exceed its
// deadline, and a changed endpoint would wait for all of them. So they are written in small groups,
// which grow if they are cheap, for a bounded time in each pass. The rest waits for the next pass,
// and other changes are written in between. The zero Pacer is ready.
type Pacer struct {
	quota int // rows in one write
	left  int // of it
	held  int // rows that were not admitted
}

// The bounds: a write should take between quick and slow, a pass no longer than
// maxPacedPass for all of them.
const (
	firstQuota   = 16
	maxQuota     = 512
	quick        = 25 * time.Millisecond
	slow         = 250 * time.Millisecond
	maxPacedPass = 500 * time.Millisecond
)

// Held returns how many rows the last group left to the next pass.
func (p *Pacer) Held() int { return p.held }

// Admit reports whether one more row may be written in this group.
func (p *Pacer) Admit() bool {
	if p.left == 0 {
		p.held++
		return false
	}
	p.left--
	return true
}

// Run calls write for group after group, until all rows are admitted or the time of a pass is
// over. Rows that failed are not tried again in the same pass.
func (p *Pacer) Run(ctx context.Context, pass delta.Pass, write func(context.Context, delta.Pass) delta.Outcome) delta.Outcome {
	var out delta.Outcome
	for ; ; pass.Retry = false {
		p.begin()
		group := write(ctx, pass)
		out = out.Plus(group)
		if p.held == 0 {
			return out
		}
		p.adapt(group.Took)
		if out.Took > maxPacedPass || ctx.Err() != nil {
			return out
		}
	}
}

// begin allows another group.
func (p *Pacer) begin() {
	if p.quota == 0 {
		p.quota = firstQuota
	}
	p.left, p.held = p.quota, 0
}

// adapt sets the size of the next group by the time that one took.
func (p *Pacer) adapt(took time.Duration) {
	switch {
	case took < quick:
		p.quota = min(2*p.quota, maxQuota)
	case took > slow:
		p.quota = max(p.quota/2, 1)
	}
}
