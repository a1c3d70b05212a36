package vservertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Fake is an IPVS table with the methods of vserver.Handle. Unlike a Handle it
// may be used and looked at by several goroutines.
type Fake struct {
	mu       sync.Mutex
	table    *Table
	plan     plan
	count    vserver.Counters
	timeouts vserver.Timeouts
	// survey are the servers that the one in progress has still to show; nil is none.
	survey []vserver.ServerKey
}

// NewFake is an empty table with all schedulers and the kernel's timeouts.
func NewFake() *Fake {
	return &Fake{
		table:    NewTable(),
		timeouts: vserver.Timeouts{TCP: 15 * time.Minute, TCPFin: 2 * time.Minute, UDP: 5 * time.Minute},
	}
}

// SetSchedulers makes exactly these exist for writes to come.
func (f *Fake) SetSchedulers(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.SetSchedulers(names...)
}

// RefuseStaging is a kernel before 4.2, which has no scheduler of the name "none".
func (f *Fake) RefuseStaging() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.Schedulers[vserver.SchedulerNone] = false
}

// OneTunnel is a kernel before 5.3, which wraps packets in IP alone.
func (f *Fake) OneTunnel() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.OneTunnel = true
}

// Schedules reports whether a new connection to a server gets a destination.
func (f *Fake) Schedules(k vserver.ServerKey) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.Schedule(k)
}

// GracePeriods counts the changes of servers that the kernel waited for.
func (f *Fake) GracePeriods() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.GracePeriods
}

// SetConnections makes a destination have connections, also one that is not in
// the table for the moment.
func (f *Fake) SetConnections(k vserver.DestinationKey, c vserver.Connections) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.Connections[k] = c
}

// String prints the whole table as `ipvsadm -Sn` does, hidden rows included.
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.String()
}

// Counters counts as a Handle does.
func (f *Fake) Counters() vserver.Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Close does nothing: a test looks at the table afterwards.
func (f *Fake) Close() {}

// WriteServers is vserver.Handle.WriteServers.
func (f *Fake) WriteServers(ctx context.Context, changes []vserver.ServerChange) []error {
	return write(ctx, f, changes, func(c vserver.ServerChange) (string, string, func() error) {
		return c.Op.String() + " server", c.Key.String(), func() error { return f.writeServer(c) }
	})
}

// WriteDestinations is vserver.Handle.WriteDestinations.
func (f *Fake) WriteDestinations(ctx context.Context, changes []vserver.DestinationChange) []error {
	return write(ctx, f, changes, func(c vserver.DestinationChange) (string, string, func() error) {
		return c.Op.String() + " destination", c.Key.String(), func() error { return f.writeDestination(c) }
	})
}

// write goes through a batch: the whole call may be planned to fail, then a row.
func write[C interface{ Check() error }](ctx context.Context, f *Fake, changes []C, parts func(C) (verb, key string, apply func() error)) []error {
	if len(changes) == 0 {
		return nil
	}
	callErr := f.begin(ctx)
	defer f.mu.Unlock()
	errs := make([]error, len(changes))
	for i, c := range changes {
		verb, key, apply := parts(c)
		err := callErr
		if err == nil {
			err = cmp.Or(c.Check(), f.plan.rows[key])
		}
		if err == nil {
			f.count.Rows++
			f.count.Messages++
			err = apply()
		}
		if err != nil {
			errs[i] = fmt.Errorf("%s %s: %w", verb, key, err)
		}
	}
	f.count.Sends++
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	return errs
}

// writeServer converges as the Handle does.
func (f *Fake) writeServer(c vserver.ServerChange) error {
	t := f.table
	var errno syscall.Errno
	switch c.Op {
	case vserver.Add:
		made := c.Server
		if c.Staged {
			made.Scheduler = vserver.SchedulerNone
		}
		switch errno = t.AddServer(c.Key, made); {
		case errno == syscall.EEXIST:
			errno = t.UpdateServer(c.Key, c.Server)
		case errno == syscall.ENOENT && c.Staged:
			return fmt.Errorf("scheduler %q: %w", made.Scheduler, vserver.ErrNoStaging)
		}
	case vserver.Update:
		if errno = t.UpdateServer(c.Key, c.Server); errno == syscall.ESRCH {
			errno = t.AddServer(c.Key, c.Server)
		}
	case vserver.Delete:
		_ = t.DeleteServer(c.Key) // missing is fine
	}
	if errno == syscall.ENOENT {
		return fmt.Errorf("scheduler %q: %w", c.Server.Scheduler, vserver.ErrUnsupported)
	}
	return orNil(errno)
}

func (f *Fake) writeDestination(c vserver.DestinationChange) error {
	t := f.table
	var errno syscall.Errno
	switch c.Op {
	case vserver.Add:
		if errno = t.AddDestination(c.Key, c.Destination); errno == syscall.EEXIST {
			errno = t.UpdateDestination(c.Key, c.Destination)
		}
	case vserver.Update:
		if errno = t.UpdateDestination(c.Key, c.Destination); errno == syscall.ENOENT {
			errno = t.AddDestination(c.Key, c.Destination)
		}
	case vserver.Delete:
		_ = t.DeleteDestination(c.Key) // missing is fine
	}
	if errno == syscall.ESRCH {
		return fmt.Errorf("its server %w", vserver.ErrNotExist)
	}
	return orNil(errno)
}

// ListServers is vserver.Handle.ListServers.
func (f *Fake) ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	f.count.Dumps++
	return shown(f, f.table.Servers), nil
}

// ListDestinations is vserver.Handle.ListDestinations: a missing server has
// none.
func (f *Fake) ListDestinations(ctx context.Context, k vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("list destinations of %s: %w", k, err)
	}
	f.count.Dumps++
	return shown(f, f.table.Destinations[k]), nil
}

// List is vserver.Handle.List; for the fault plan it is one call.
func (f *Fake) List(ctx context.Context) (map[vserver.ServerKey]vserver.Server, map[vserver.DestinationKey]vserver.Destination, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, nil, fmt.Errorf("list servers: %w", err)
	}
	f.count.Dumps += uint64(1 + len(f.table.Servers))
	return shown(f, f.table.Servers), shown(f, f.table.AllDestinations()), nil
}

// GetServer is vserver.Handle.GetServer.
func (f *Fake) GetServer(ctx context.Context, k vserver.ServerKey) (vserver.Server, error) {
	found, err := f.GetServers(ctx, []vserver.ServerKey{k})
	if err != nil {
		return vserver.Server{}, err
	}
	s, ok := found[k]
	if !ok {
		return s, fmt.Errorf("get server %s: %w", k, vserver.ErrNotExist)
	}
	return s, nil
}

// GetServers is vserver.Handle.GetServers.
func (f *Fake) GetServers(ctx context.Context, keys []vserver.ServerKey) (map[vserver.ServerKey]vserver.Server, error) {
	if len(keys) == 0 {
		return map[vserver.ServerKey]vserver.Server{}, nil
	}
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("get server %s: %w", keys[0], err)
	}
	f.count.Messages += uint64(len(keys))
	f.count.Sends++
	asked := make(map[vserver.ServerKey]vserver.Server, len(keys))
	for _, k := range keys {
		if s, ok := f.table.Servers[k]; ok {
			asked[k] = s
		}
	}
	return shown(f, asked), nil
}

// Probe is vserver.Handle.Probe.
func (f *Fake) Probe(ctx context.Context, scheduler string) error {
	return vserver.ProbeWith(ctx, f, scheduler)
}

// ProbeGUE is vserver.Handle.ProbeGUE.
func (f *Fake) ProbeGUE(ctx context.Context) error { return vserver.ProbeGUEWith(ctx, f) }

// Count is vserver.Handle.Count, a few destinations at a time.
func (f *Fake) Count(wanted map[vserver.DestinationKey]struct{}) vserver.Counting {
	keys := slices.SortedFunc(maps.Keys(wanted), vserver.DestinationKey.Compare)
	return &counting{fake: f, left: keys, found: make(map[vserver.DestinationKey]vserver.Connections, len(wanted))}
}

// countPiece is how many destinations a piece of a counting looks at.
const countPiece = 8

type counting struct {
	fake  *Fake
	left  []vserver.DestinationKey
	found map[vserver.DestinationKey]vserver.Connections
}

// Next implements vserver.Counting.
func (c *counting) Next(ctx context.Context) (found map[vserver.DestinationKey]vserver.Connections, done bool, err error) {
	f := c.fake
	if len(c.left) == 0 {
		return c.found, true, nil
	}
	err = f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, false, fmt.Errorf("count connections: %w", err)
	}
	if len(c.found) == 0 {
		f.count.Dumps++
	}
	n := min(countPiece, len(c.left))
	for _, k := range c.left[:n] {
		if _, there := f.table.Destinations[k.Server][k]; there {
			c.found[k] = f.table.Connections[k]
		}
	}
	if c.left = c.left[n:]; len(c.left) > 0 {
		return nil, false, nil
	}
	return shown(f, c.found), true, nil
}

// CountAll counts all pieces of a counting.
func CountAll(ctx context.Context, c vserver.Counting) (map[vserver.DestinationKey]vserver.Connections, error) {
	for {
		found, done, err := c.Next(ctx)
		if done || err != nil {
			return found, err
		}
	}
}

// surveyPiece is how many servers a piece of a survey shows.
const surveyPiece = 8

// errNoSurvey is what a survey that was not begun fails with.
var errNoSurvey = errors.New("no list was started")

// BeginSurvey is vserver.Handle.BeginSurvey.
func (f *Fake) BeginSurvey(ctx context.Context) error {
	err := cmp.Or(f.begin(ctx), f.plan.surveys)
	defer f.mu.Unlock()
	f.survey = nil
	if err != nil {
		return fmt.Errorf("begin a survey of servers: %w", err)
	}
	f.count.Dumps++
	f.survey = slices.SortedFunc(maps.Keys(shown(f, f.table.Servers)), vserver.CompareServers)
	if f.plan.order != nil {
		f.survey = f.plan.order(f.survey)
	}
	f.survey = append([]vserver.ServerKey{}, f.survey...)
	return nil
}

// Survey is vserver.Handle.Survey, a few servers at a time.
func (f *Fake) Survey(ctx context.Context, visit func(vserver.ServerKey, vserver.Digest)) (done bool, err error) {
	err = cmp.Or(f.begin(ctx), f.plan.surveys)
	defer f.mu.Unlock()
	if err == nil && f.survey == nil {
		err = errNoSurvey
	}
	if err != nil {
		f.survey = nil
		return false, fmt.Errorf("survey servers: %w", err)
	}
	n := min(surveyPiece, len(f.survey))
	for _, k := range f.survey[:n] {
		if v, there := f.table.Servers[k]; there {
			visit(k, f.digest(k, v))
		}
	}
	if f.survey = f.survey[n:]; len(f.survey) > 0 {
		return false, nil
	}
	f.survey = nil
	return true, nil
}

func (f *Fake) digest(k vserver.ServerKey, v vserver.Server) vserver.Digest {
	digest := vserver.DigestOf(k, v)
	for dk, d := range shown(f, f.table.Destinations[k]) {
		digest.Add(dk, d)
	}
	return digest
}

// Timeouts is vserver.Handle.Timeouts.
func (f *Fake) Timeouts(ctx context.Context) (vserver.Timeouts, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return vserver.Timeouts{}, fmt.Errorf("get ipvs timeouts: %w", err)
	}
	return f.timeouts, nil
}

// SetTimeouts is vserver.Handle.SetTimeouts.
func (f *Fake) SetTimeouts(ctx context.Context, t vserver.Timeouts) error {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err == nil {
		t, err = t.Rounded()
	}
	if err != nil {
		return fmt.Errorf("set ipvs timeouts: %w", err)
	}
	keep := func(now *time.Duration, wanted time.Duration) {
		if wanted != 0 {
			*now = wanted
		}
	}
	keep(&f.timeouts.TCP, t.TCP)
	keep(&f.timeouts.TCPFin, t.TCPFin)
	keep(&f.timeouts.UDP, t.UDP)
	return nil
}

func orNil(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
