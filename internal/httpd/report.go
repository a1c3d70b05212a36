package httpd

import (
	"context"
	"sync"
	"time"
)

// reportWithin is how long a request waits for a Report. A kubelet gives a probe
// one second by default, a load balancer five or more.
const reportWithin = 5 * time.Second

// Report is the input of the health checks, read again for each request.
type Report struct {
	// Families are those this node serves, in any order.
	Families []Family
	// NodeEligible is false if the Node was never seen, is being deleted, or has the taint
	// ToBeDeletedByClusterAutoscaler (KEP-3836).
	NodeEligible bool
	// Checks are all things that must hold, whether they do or not.
	Checks []Check
}

// Family is the state of one address family, shown in the status of a body. It
// turns nothing red by itself: a Check does.
type Family struct {
	Name    string    // IPv4 or IPv6
	Updated time.Time // when the kernel was last known to be as wanted
	Healthy bool
}

// Check is one thing that must hold. Reason is empty when it does. Health, Live
// and Ready say which of /healthz, /livez and /readyz it turns red.
type Check struct {
	Name, Reason        string
	Health, Live, Ready bool
}

// newest is the time of the latest update of any family.
func (r Report) newest() time.Time {
	var newest time.Time
	for _, f := range r.Families {
		if f.Updated.After(newest) {
			newest = f.Updated
		}
	}
	return newest
}

// desk asks for reports on behalf of requests. One report is read at a time, and requests that
// arrive meanwhile share the next one. So each request gets a report that was begun after the
// request arrived, and many probes cost the loop one report at a time. A hanging loop blocks one
// goroutine instead of one for each probe.
type desk struct {
	report func(context.Context) Report

	mu      sync.Mutex
	running bool
	next    *reply // for waiting requests; nil without any
	last    Report // the latest that came back
}

// reply is a report that many may wait for.
type reply struct {
	done   chan struct{}
	report Report // read after done, like late
	late   bool   // it came after its deadline, and may be half a report
}

// ask returns a fresh report, or the latest there was and false when none comes
// before the context ends.
func (d *desk) ask(ctx context.Context) (Report, bool) {
	mine := d.queue()
	select {
	case <-mine.done:
		if !mine.late {
			return mine.report, true
		}
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, false
}

// queue joins those who wait for the next report and sees to it that there is one.
func (d *desk) queue() *reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == nil {
		d.next = &reply{done: make(chan struct{})}
	}
	if !d.running {
		d.running = true
		go d.run()
	}
	return d.next
}

// run reads reports until no request waits.
func (d *desk) run() {
	for {
		mine := d.take()
		if mine == nil {
			return
		}
		// Not the context of a request: others wait for the same report.
		ctx, cancel := context.WithTimeout(context.Background(), reportWithin)
		mine.report = d.report(ctx)
		mine.late = ctx.Err() != nil
		cancel()
		d.keep(mine)
		close(mine.done)
	}
}

// keep stores the last report that came in time.
func (d *desk) keep(r *reply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !r.late {
		d.last = r.report
	}
}

// take empties the queue; nil means that no request waits.
func (d *desk) take() *reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	mine := d.next
	d.next = nil
	d.running = mine != nil
	return mine
}
