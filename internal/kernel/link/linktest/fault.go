package linktest

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// Call names a method of the fake that a fault may hit.
type Call string

// The calls that can fail, hang or be counted.
const (
	Ensure   Call = "ensure"
	List     Call = "list"
	Write    Call = "write"
	Local    Call = "local"
	Gateways Call = "gateways"
	Watch    Call = "watch"
	Remove   Call = "remove"

	ListRoutes  Call = "list routes"
	WriteRoutes Call = "write routes"

	ListDetached  Call = "list detached"
	WriteDetached Call = "write detached"

	ListAnnounced  Call = "list announced"
	WriteAnnounced Call = "write announced"
	RulesTo        Call = "list rules"
)

// plan is what will go wrong. The zero value is a healthy kernel.
type plan struct {
	mu     sync.Mutex
	calls  map[Call]int // calls so far
	nth    map[Call]map[int]error
	always map[Call]error
	hang   map[Call]bool
	rows   map[netip.Addr]error
	hidden map[netip.Addr]bool
}

func newPlan() *plan {
	p := &plan{calls: map[Call]int{}}
	p.heal()
	return p
}

func (p *plan) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nth, p.always, p.hang = map[Call]map[int]error{}, map[Call]error{}, map[Call]bool{}
	p.rows, p.hidden = map[netip.Addr]error{}, map[netip.Addr]bool{}
}

// enter counts a call and returns its fault. A hanging call waits for the end of
// the context and fails as the real one does at its deadline.
func (p *plan) enter(ctx context.Context, c Call) error {
	p.mu.Lock()
	p.calls[c]++
	err, hang := p.nth[c][p.calls[c]], p.hang[c]
	if err == nil {
		err = p.always[c]
	}
	p.mu.Unlock()
	if hang {
		<-ctx.Done()
		return fmt.Errorf("%s: no answer from the kernel: %w: %w", c, link.ErrBusy, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}

func (p *plan) row(a netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rows[a]
}

func (p *plan) hides(a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden[a]
}

// FailNth makes the n-th call from now fail, 1 being the next one. A failed Write
// applies nothing and has the error in every row.
func (f *Fake) FailNth(c Call, n int, err error) {
	f.plan.mu.Lock()
	defer f.plan.mu.Unlock()
	if f.plan.nth[c] == nil {
		f.plan.nth[c] = map[int]error{}
	}
	f.plan.nth[c][f.plan.calls[c]+n] = err
}

// FailAlways makes every call fail until Heal.
func (f *Fake) FailAlways(c Call, err error) {
	f.plan.mu.Lock()
	defer f.plan.mu.Unlock()
	f.plan.always[c] = err
}

// FailAddr makes every row of that address fail; its neighbours are applied.
func (f *Fake) FailAddr(a netip.Addr, err error) {
	f.plan.mu.Lock()
	defer f.plan.mu.Unlock()
	f.plan.rows[a] = err
}

// Hide drops the address from what List returns, as a short dump would.
func (f *Fake) Hide(a netip.Addr) {
	f.plan.mu.Lock()
	defer f.plan.mu.Unlock()
	f.plan.hidden[a] = true
}

// Hang makes every call wait for the end of its context.
func (f *Fake) Hang(c Call) {
	f.plan.mu.Lock()
	defer f.plan.mu.Unlock()
	f.plan.hang[c] = true
}

// Heal takes all faults back.
func (f *Fake) Heal() { f.plan.heal() }

// Calls returns how often a call was made, failed ones included.
func (f *Fake) Calls(c Call) int {
	f.plan.mu.Lock()
	defer f.plan.mu.Unlock()
	return f.plan.calls[c]
}
