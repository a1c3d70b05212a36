package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/herd"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/paper"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/plane"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
)

// options say what is measured.
type options struct {
	services, agents []int // agents in growing order
	kinds            []string
	endpoints, nodes int
	rate             int
	window, idle     time.Duration
	windows          int
	storm            bool
	fleet            []int // what is forecast
	rates            []int
	limit            time.Duration
	json             bool
	files            []string // to read results from
	log              io.Writer
}

// step is what was measured with so many agents.
type step struct {
	Agents int `json:"agents"`
	Added  int `json:"added"` // at once, for this step
	// Of the start of those: bytes of each in both directions, the server's CPU seconds for all, and until the last was in sync.
	ListDown float64 `json:"listDown"`
	ListUp   float64 `json:"listUp"`
	ListCPU  float64 `json:"listCPU"`
	InSync   float64 `json:"inSync"`
	// Memory: of the heap and of stacks in this process for each agent, RSS of the server.
	Heap   float64 `json:"heap"`
	Stacks float64 `json:"stacks"`
	RSS    float64 `json:"rss"`
	// Of changes: bytes of each agent for each, in both directions, and the server's CPU seconds for each change, of all agents.
	Changes    int     `json:"changes"`
	ChangeDown float64 `json:"changeDown"`
	ChangeUp   float64 `json:"changeUp"`
	ChangeCPU  float64 `json:"changeCPU"`
	Rate       float64 `json:"rate"` // that was reached
}

// result is one kind of follower with so many Services.
type result struct {
	Kind      string         `json:"kind"`
	Services  int            `json:"services"`
	Endpoints int            `json:"endpoints"`
	Nodes     int            `json:"nodes"`
	Steps     []step         `json:"steps"`
	IdleDown  float64        `json:"idleDown"` // bytes a second of each agent
	IdleUp    float64        `json:"idleUp"`
	IdleAsked map[string]int `json:"idleAsked"` // requests of all agents meanwhile
	BeatDown  float64        `json:"beatDown"`  // bytes of each agent for one beat of each Node that has an agent
	Changed   watched        `json:"changed"`   // during the changes with the most agents
	Beaten    watched        `json:"beaten"`    // during those beats
	// A plain list, which is not streamed and may be compressed: its bytes, and the server's CPU seconds.
	PlainDown float64    `json:"plainDown"`
	PlainCPU  float64    `json:"plainCPU"`
	Cut       *storm     `json:"cut,omitempty"`
	Restart   *storm     `json:"restart,omitempty"`
	Timeouts  []float64  `json:"timeouts,omitempty"` // of watches, in seconds
	Cost      paper.Cost `json:"cost"`
	ChangeFit paper.Line `json:"changeFit"`
	ListFit   paper.Line `json:"listFit"`
	RSSFit    paper.Line `json:"rssFit"`
	HeapFit   paper.Line `json:"heapFit"`
}

// storm is what happens when all agents lose the server at once.
type storm struct {
	Away float64 `json:"away"` // seconds without a server
	// Connects and InSync are seconds from when the server listened again: when connections came, and when each agent had what was
	// changed meanwhile.
	Connects []float64      `json:"connects"`
	InSync   []float64      `json:"inSync"`
	Asked    map[string]int `json:"asked"`
	Down     float64        `json:"down"` // bytes of each agent
	Up       float64        `json:"up"`
	CPU      float64        `json:"cpu"`    // of the server, from its start if it was restarted
	Ready    float64        `json:"ready"`  // seconds from when it listened until it said that it is ready
	Writes   float64        `json:"writes"` // and until it took a change
	// Of the server's queues (API priority and fairness), for the priority level of agents: requests that were let through, refused,
	// the seats that each was thought to take, and the seats there are.
	Dispatched float64 `json:"dispatched"`
	Rejected   float64 `json:"rejected"`
	Seats      float64 `json:"seats"`
	Limit      float64 `json:"limit"`
	Waited     float64 `json:"waited"` // seconds in queues, of all together
}

// watched is what the server sent by watches to all agents, by resource.
type watched struct {
	Events map[string]float64 `json:"events"`
	Sizes  map[string]float64 `json:"sizes"` // bytes of objects, before TLS
}

// trial measures one kind with so many Services.
type trial struct {
	options
	plane   *plane.Plane
	herd    *herd.Herd
	version int
	random  *rand.Rand
	out     *result
	since   time.Time
}

func (t *trial) say(format string, args ...any) {
	fmt.Fprintf(t.log, "fleet: %4.0fs  %s\n", time.Since(t.since).Seconds(), fmt.Sprintf(format, args...))
}

// run fills out.
func (t *trial) run(ctx context.Context) error {
	if err := t.warm(ctx); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	most := t.agents[len(t.agents)-1]
	h, err := herd.New(ctx, t.out.Kind, t.plane, most)
	if err != nil {
		return err
	}
	defer h.Close()
	t.herd = h
	heap, stacks := herd.Memory()
	for _, n := range append([]int{0}, t.agents...) {
		s, err := t.step(ctx, n, heap, stacks)
		if err != nil {
			return fmt.Errorf("%d agents: %w", n, err)
		}
		t.out.Steps = append(t.out.Steps, s)
	}
	if err := t.rest(ctx); err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	if err := t.beats(ctx); err != nil {
		return fmt.Errorf("beats of Nodes: %w", err)
	}
	if t.storm {
		if err := t.storms(ctx); err != nil {
			return err
		}
	}
	t.out.conclude()
	return nil
}

// warm has one follower come and go, and a plain list: what is made once in a process or a server is there then.
func (t *trial) warm(ctx context.Context) error {
	h, err := herd.New(ctx, t.out.Kind, t.plane, 1)
	if err != nil {
		return err
	}
	defer h.Close()
	if _, err = h.Grow(ctx, 1); err != nil {
		return err
	}
	t.herd = h
	used, _, err := t.during(func() error { return h.List(ctx) })
	t.out.PlainDown, t.out.PlainCPU = used.down, used.cpu
	return err
}

// meter is what is read before and after.
type meter struct {
	down, up float64
	cpu      float64
	rss      float64
	at       time.Time
}

func (t *trial) read() (meter, error) {
	u, err := t.plane.Usage()
	if err != nil {
		return meter{}, err
	}
	down, up := t.herd.Bytes()
	return meter{float64(down), float64(up), u.CPU.Seconds(), float64(u.RSS), time.Now()}, nil
}

// during is what was used by something.
func (t *trial) during(do func() error) (used meter, took time.Duration, err error) {
	before, err := t.read()
	if err != nil {
		return used, 0, err
	}
	if err := do(); err != nil {
		return used, 0, err
	}
	after, err := t.read()
	return meter{after.down - before.down, after.up - before.up, after.cpu - before.cpu, after.rss, after.at}, after.at.Sub(before.at), err
}

func (t *trial) step(ctx context.Context, n int, heap, stacks uint64) (s step, err error) {
	s = step{Agents: n, Added: n - len(t.herd.Members)}
	used, took, err := t.during(func() error { _, err := t.herd.Grow(ctx, n); return err })
	if err != nil {
		return s, err
	}
	if n > 0 {
		each := float64(s.Added)
		s.ListDown, s.ListUp, s.ListCPU, s.InSync = used.down/each, used.up/each, used.cpu, took.Seconds()
		h, st := herd.Memory()
		s.Heap, s.Stacks = (float64(h)-float64(heap))/float64(n), (float64(st)-float64(stacks))/float64(n)
		t.say("%s: %d agents in sync after %.1f s, %s each, server %.2f s CPU, heap %s each", t.out.Kind, n, took.Seconds(), size(s.ListDown), s.ListCPU, size(s.Heap))
	}
	t.out.Changed, err = t.watching(ctx, func() error { return t.changes(ctx, &s) })
	t.say("%s: %d agents, %.0f changes/s: %s down %s up for each agent and change, server %.2f ms CPU a change, RSS %s",
		t.out.Kind, n, s.Rate, size(s.ChangeDown), size(s.ChangeUp), s.ChangeCPU*1000, size(s.RSS))
	return s, err
}

// changes measures windows of changes.
func (t *trial) changes(ctx context.Context, s *step) error {
	var down, up, cpu, rate []float64
	for range t.windows {
		count := max(1, int(t.window.Seconds()*float64(t.rate)))
		used, took, err := t.during(func() error { return t.change(ctx, count) })
		if err != nil {
			return err
		}
		each, agents := float64(count), float64(max(s.Agents, 1))
		s.Changes += count
		down, up = append(down, used.down/each/agents), append(up, used.up/each/agents)
		cpu, rate, s.RSS = append(cpu, used.cpu/each), append(rate, each/took.Seconds()), used.rss
	}
	s.ChangeDown, s.ChangeUp, s.ChangeCPU, s.Rate = stats.Median(down), stats.Median(up), stats.Median(cpu), stats.Median(rate)
	return nil
}

// writers is how many changes are under way at once.
const writers = 16

// change writes so many changes, the last of them to the marker, and returns when all members have that. Changes are written at the rate,
// or as fast as the server takes them.
func (t *trial) change(ctx context.Context, count int) error {
	begun := time.Now()
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range count - 1 {
		select {
		case <-time.After(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(t.rate)))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		t.version++
		service, version := 1+t.random.IntN(t.out.Services-1), t.version
		group.Go(func() error { return t.plane.Change(inner, service, version) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return t.mark(ctx)
}

// mark changes the marker, and returns when each member has seen it.
func (t *trial) mark(ctx context.Context) error {
	t.want()
	if err := t.plane.Change(ctx, plane.Marker, t.version); err != nil {
		return err
	}
	_, err := t.herd.Await(ctx)
	return err
}

// want has members look for the next change of the marker.
func (t *trial) want() {
	t.version++
	t.herd.Want(plane.MarkerAddr(t.version))
}

// rest measures what goes over the wires while nothing changes.
func (t *trial) rest(ctx context.Context) error {
	mark, err := t.plane.Mark()
	if err != nil {
		return err
	}
	used, took, err := t.during(func() error {
		select {
		case <-time.After(t.idle):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		return err
	}
	each := float64(len(t.herd.Members)) * took.Seconds()
	t.out.IdleDown, t.out.IdleUp = used.down/each, used.up/each
	requests, err := t.plane.Requests(mark, used.at.Add(-took))
	t.out.IdleAsked = asked(requests)
	t.say("%s: idle %.1f B/s down, %.1f B/s up each; requests %v", t.out.Kind, t.out.IdleDown, t.out.IdleUp, t.out.IdleAsked)
	return err
}

// asked counts requests by what they ask for, and by a status that is not 200; without any it is empty, not nil.
func asked(requests []plane.Request) map[string]int {
	out := map[string]int{}
	for _, q := range requests {
		name := q.String()
		if q.Code != http.StatusOK {
			name += fmt.Sprintf(" (%d)", q.Code)
		}
		out[name]++
	}
	return out
}

// beats has every Node with an agent beat once, and as many others.
func (t *trial) beats(ctx context.Context) error {
	n := len(t.herd.Members)
	var used meter
	var err error
	t.out.Beaten, err = t.watching(ctx, func() error {
		used, _, err = t.during(func() error { return t.beat(ctx, min(2*n, t.nodes)) })
		return err
	})
	t.out.BeatDown = used.down/float64(n) - t.out.Steps[len(t.out.Steps)-1].ChangeDown
	t.say("%s: %d Nodes write their status: %s for each agent", t.out.Kind, min(2*n, t.nodes), size(t.out.BeatDown))
	return err
}

// beat has so many Nodes write their status, and returns when members have been sent it.
func (t *trial) beat(ctx context.Context, n int) error {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return t.plane.Beat(inner, i, t.version) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// What was written before has been sent when this has.
	return t.mark(ctx)
}

// watching tells what watches carried while something was done.
func (t *trial) watching(ctx context.Context, do func() error) (w watched, err error) {
	before, err := t.plane.Metrics(ctx)
	if err != nil {
		return w, err
	}
	if err := do(); err != nil {
		return w, err
	}
	after, err := t.plane.Metrics(ctx)
	if err != nil {
		return w, err
	}
	const events, sizes = "apiserver_watch_events_total", "apiserver_watch_events_sizes_sum"
	return watched{Events: increase(before, after, events), Sizes: increase(before, after, sizes)}, nil
}

// increase is that of a metric by resource, where there is any.
func increase(before, after plane.Metrics, name string) map[string]float64 {
	was, out := before.By(name, "resource", nil), after.By(name, "resource", nil)
	for resource := range out {
		out[resource] -= was[resource]
	}
	maps.DeleteFunc(out, func(_ string, v float64) bool { return v == 0 })
	return out
}

// storms ends all connections, and then the server.
func (t *trial) storms(ctx context.Context) (err error) {
	t.out.Cut = &storm{}
	if err := t.storming(ctx, t.out.Cut, t.cut); err != nil {
		return fmt.Errorf("connections that end: %w", err)
	}
	t.say("%s: connections cut: in sync again %.1f s after, requests %v, %s each", t.out.Kind, stats.Percentile(t.out.Cut.InSync, 100), t.out.Cut.Asked, size(t.out.Cut.Down))
	t.out.Restart = &storm{}
	if err := t.storming(ctx, t.out.Restart, t.restart); err != nil {
		return fmt.Errorf("restart of the API server: %w", err)
	}
	t.say("%s: API server restarted: in sync again p50 %.1f s, all %.1f s after it listens, requests %v, %s each, server %.1f s CPU", t.out.Kind,
		stats.Median(t.out.Restart.InSync), stats.Percentile(t.out.Restart.InSync, 100), t.out.Restart.Asked, size(t.out.Restart.Down), t.out.Restart.CPU)
	return nil
}

// cut ends all connections, as a load balancer does that fails.
func (t *trial) cut(ctx context.Context, _ *storm) (time.Time, error) {
	now := time.Now()
	t.herd.Cut()
	return now, t.plane.Change(ctx, plane.Marker, t.version)
}

// restart ends the server as a crash does, which all agents notice in the same moment, starts it, and changes the marker as soon as it
// takes a change. It returns when the server listened again.
func (t *trial) restart(ctx context.Context, s *storm) (listens time.Time, err error) {
	t.herd.Shut()
	if err := t.plane.KillAPIServer(ctx); err != nil {
		return listens, err
	}
	stopped := time.Now()
	var group errgroup.Group
	group.Go(func() (err error) {
		if listens, err = t.herd.Reopen(ctx); err != nil {
			return err
		}
		for last := t.plane.Change(ctx, plane.Marker, t.version); last != nil; last = t.plane.Change(ctx, plane.Marker, t.version) {
			select {
			case <-time.After(again):
			case <-ctx.Done():
				return errors.Join(context.Cause(ctx), last)
			}
		}
		s.Writes = time.Since(listens).Seconds()
		return nil
	})
	err = t.plane.StartAPIServer(ctx)
	ready := time.Now()
	err = errors.Join(err, group.Wait())
	s.Away, s.Ready = listens.Sub(stopped).Seconds(), ready.Sub(listens).Seconds()
	return listens, err
}

// again is how long a write that failed rests.
const again = 50 * time.Millisecond

// storming measures from what begin returns until all members have the change of the marker that begin makes.
func (t *trial) storming(ctx context.Context, s *storm, begin func(context.Context, *storm) (time.Time, error)) error {
	mark, err := t.plane.Mark()
	if err != nil {
		return err
	}
	before, err := t.read()
	if err != nil {
		return err
	}
	t.herd.Accepted()
	t.want()
	pid := t.plane.APIServerPID()
	begun, err := begin(ctx, s)
	if err != nil {
		return err
	}
	seen, err := t.herd.Await(ctx)
	if err != nil {
		return err
	}
	after, err := t.read()
	if err != nil {
		return err
	}
	if t.plane.APIServerPID() != pid {
		before.cpu = 0
	}
	each := float64(len(t.herd.Members))
	s.Down, s.Up, s.CPU = (after.down-before.down)/each, (after.up-before.up)/each, after.cpu-before.cpu
	s.InSync, s.Connects = seconds(begun, seen), seconds(begun, t.herd.Accepted())
	requests, err := t.plane.Requests(mark, before.at)
	if err != nil {
		return err
	}
	s.Asked = asked(requests)
	for _, q := range requests {
		if q.Timeout > 0 && q.How != plane.List {
			t.out.Timeouts = append(t.out.Timeouts, q.Timeout.Seconds())
		}
	}
	return t.queues(ctx, s)
}

// level is where the server queues requests of service accounts of kube-system (the bootstrap configuration of flow control).
var level = map[string]string{"priority_level": "workload-high"}

func (t *trial) queues(ctx context.Context, s *storm) error {
	m, err := t.plane.Metrics(ctx)
	if err != nil {
		return err
	}
	const prefix = "apiserver_flowcontrol_"
	s.Dispatched, s.Rejected = m.Sum(prefix+"dispatched_requests_total", level), m.Sum(prefix+"rejected_requests_total", level)
	if n := m.Sum(prefix+"work_estimated_seats_count", level); n > 0 {
		s.Seats = m.Sum(prefix+"work_estimated_seats_sum", level) / n
	}
	s.Limit, s.Waited = m.Sum(prefix+"nominal_limit_seats", level), m.Sum(prefix+"request_wait_duration_seconds_sum", level)
	return nil
}

func seconds(from time.Time, list []time.Time) []float64 {
	out := make([]float64, len(list))
	for i, at := range list {
		out[i] = at.Sub(from).Seconds()
	}
	return out
}

// conclude draws lines through the steps, and what an agent costs from them.
func (r *result) conclude() {
	var changes, lists, rss, heap []paper.Point
	last := r.Steps[len(r.Steps)-1]
	for _, s := range r.Steps {
		changes = append(changes, paper.Point{X: float64(s.Agents), Y: s.ChangeCPU})
		heap = append(heap, paper.Point{X: float64(s.Agents), Y: s.Heap * float64(s.Agents)})
		rss = append(rss, paper.Point{X: float64(s.Agents), Y: s.RSS})
		if s.Added > 0 {
			lists = append(lists, paper.Point{X: float64(s.Added), Y: s.ListCPU})
		}
	}
	r.ChangeFit, r.ListFit, r.RSSFit, r.HeapFit = paper.Fit(changes), paper.Fit(lists), paper.Fit(rss), paper.Fit(heap)
	list := r.ListFit.Each
	if list <= 0 { // one number of agents, or so few that the clock's 10 ms decide
		list = last.ListCPU / float64(max(1, last.Added))
	}
	r.Cost = paper.Cost{
		Services: float64(r.Services), ListBytes: last.ListDown, ListCPU: list,
		EventBytes: last.ChangeDown, EventCPU: r.ChangeFit.Each, ChangeCPU: r.ChangeFit.Base,
		IdleBytes: r.IdleDown,
	}
}
