package vservertest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

func TestFakeContract(t *testing.T) {
	Contract(t, func(*testing.T) Subject {
		f := NewFake()
		return Subject{
			Client: f, Schedulers: Schedulers(),
			Connect: func(_ *testing.T, to vserver.DestinationKey) func() {
				f.SetConnections(to, vserver.Connections{Active: 1})
				f.Carry(to, vserver.Traffic{Connections: 1, PacketsIn: 3, PacketsOut: 2, BytesIn: 160, BytesOut: 112})
				return func() { f.SetConnections(to, vserver.Connections{Inactive: 1}) }
			},
			Refuses: func(_ *testing.T, to vserver.DestinationKey) bool { return !f.Schedules(to.Server) },
		}
	})
}

var errPlanned = errors.New("planned")

// TestFakeOfAnOldKernel: without the name "none" staging is refused, and nothing else.
func TestFakeOfAnOldKernel(t *testing.T) {
	f := NewFake()
	f.RefuseStaging()
	change := vserver.ServerChange{Op: vserver.Add, Key: vip, Server: roundRobin, Staged: true}
	errs := f.WriteServers(context.Background(), []vserver.ServerChange{change})
	wantErrors(t, errs, 1, map[int]error{0: vserver.ErrNoStaging}, "add server 10.96.0.1:80/tcp: ")
	wantErrors(t, errs, 1, map[int]error{0: vserver.ErrUnsupported}, "")
	if errs := addVIP(f); errs != nil {
		t.Error(errs[0])
	}
}

// TestFakeThatKnowsOneTunnel: another is read over, and a probe tells.
func TestFakeThatKnowsOneTunnel(t *testing.T) {
	f := NewFake()
	f.OneTunnel()
	if err := f.ProbeGUE(context.Background()); !errors.Is(err, vserver.ErrNoGUE) || !errors.Is(err, vserver.ErrUnsupported) {
		t.Errorf("error %v, want %v", err, vserver.ErrNoGUE)
	}
	if s := f.String(); s != "" {
		t.Errorf("the probe left\n%s", s)
	}
}

// TestFakeWaitsForGracePeriods: only where a server loses a scheduler.
func TestFakeWaitsForGracePeriods(t *testing.T) {
	f := NewFake()
	for _, step := range []struct {
		scheduler string
		want      int
	}{{"none", 0}, {"mh", 0}, {"mh", 0}, {"rr", 1}, {"none", 2}, {"none", 2}, {"rr", 2}} {
		errs := f.WriteServers(context.Background(), []vserver.ServerChange{{Op: vserver.Update, Key: vip, Server: vserver.Server{Scheduler: step.scheduler}}})
		if errs != nil {
			t.Fatal(errs[0])
		}
		if got := f.GracePeriods(); got != step.want {
			t.Errorf("after %s: %d grace periods, want %d", step.scheduler, got, step.want)
		}
	}
}

// addVIP is one call that writes one row.
func addVIP(f *Fake) []error {
	return f.WriteServers(context.Background(), []vserver.ServerChange{{Op: vserver.Add, Key: vip, Server: roundRobin}})
}

func TestFakeFailsAsPlanned(t *testing.T) {
	second := server("10.96.0.2:80", vserver.ProtocolTCP)
	tests := []struct {
		name string
		plan func(*Fake)
		want []bool // whether each of four calls fails
	}{
		{"nothing", func(*Fake) {}, []bool{false, false, false, false}},
		{"the next call", func(f *Fake) { f.FailCall(1, errPlanned) }, []bool{true, false, false, false}},
		{"the third call", func(f *Fake) { f.FailCall(3, errPlanned) }, []bool{false, false, true, false}},
		{"always", func(f *Fake) { f.FailAlways(errPlanned) }, []bool{true, true, true, true}},
		{"this row", func(f *Fake) { f.FailRow(vip, errPlanned) }, []bool{true, true, true, true}},
		{"another row", func(f *Fake) { f.FailRow(second, errPlanned) }, []bool{false, false, false, false}},
		{"healed", func(f *Fake) { f.FailAlways(errPlanned); f.FailRow(vip, errPlanned); f.Heal() }, []bool{false, false, false, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := NewFake()
			tt.plan(f)
			var got []bool
			for range tt.want {
				errs := addVIP(f)
				if errs != nil && !errors.Is(errs[0], errPlanned) {
					t.Error(errs[0])
				}
				got = append(got, errs != nil)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("failed calls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFakeRowFaultSparesNeighbours(t *testing.T) {
	f := NewFake()
	second := server("10.96.0.2:80", vserver.ProtocolTCP)
	f.FailRow(second, errPlanned)
	errs := f.WriteServers(context.Background(), []vserver.ServerChange{
		{Op: vserver.Add, Key: vip, Server: roundRobin},
		{Op: vserver.Add, Key: second, Server: roundRobin},
	})
	wantErrors(t, errs, 2, map[int]error{1: errPlanned}, "add server 10.96.0.2:80/tcp: ")
	if diff := cmp.Diff("-A -t 10.96.0.1:80 -s rr\n", f.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestFakeReadsFailAsPlanned(t *testing.T) {
	ctx := context.Background()
	reads := map[string]func(*Fake) error{
		"ListServers":      func(f *Fake) error { _, err := f.ListServers(ctx); return err },
		"ListDestinations": func(f *Fake) error { _, err := f.ListDestinations(ctx, vip); return err },
		"List":             func(f *Fake) error { _, _, err := f.List(ctx); return err },
		"GetServer":        func(f *Fake) error { _, err := f.GetServer(ctx, vip); return err },
		"Count":            func(f *Fake) error { _, err := CountAll(ctx, f.Count(keySet(web))); return err },
		"ListTraffic":      func(f *Fake) error { _, err := f.ListTraffic(ctx); return err },
		"ListLoads":        func(f *Fake) error { _, err := f.ListLoads(ctx); return err },
		"BeginSurvey":      func(f *Fake) error { return f.BeginSurvey(ctx) },
		"ListDestinationTraffic": func(f *Fake) error {
			_, err := f.ListDestinationTraffic(ctx, vip)
			return err
		},
		"Survey":      func(f *Fake) error { _, err := f.Survey(ctx, nil); return err },
		"Timeouts":    func(f *Fake) error { _, err := f.Timeouts(ctx); return err },
		"SetTimeouts": func(f *Fake) error { return f.SetTimeouts(ctx, vserver.Timeouts{UDP: time.Second}) },
		"Probe":       func(f *Fake) error { return f.Probe(ctx, "rr") },
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			f := NewFake()
			f.FailCall(1, vserver.ErrBusy)
			if err := read(f); !errors.Is(err, vserver.ErrBusy) {
				t.Errorf("error %v, want %v", err, vserver.ErrBusy)
			}
		})
	}
}

func TestFakeHidesRows(t *testing.T) {
	f := NewFake()
	s := Subject{Client: f}
	startWith(t, s)
	f.Hide(web)
	wantText(t, s, "-A -t 10.96.0.1:80 -s rr")
	f.Hide(vip)
	wantText(t, s)
	f.Heal()
	wantText(t, s, "-A -t 10.96.0.1:80 -s rr", "-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1")
}

func TestFakeSurveysAsPlanned(t *testing.T) {
	f := NewFake()
	s := Subject{Client: f}
	startWith(t, s)
	second := server("10.96.0.2:80", vserver.ProtocolTCP)
	writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{second: roundRobin})
	f.ReorderSurveys(func(keys []vserver.ServerKey) []vserver.ServerKey { return []vserver.ServerKey{keys[1], keys[1]} })
	times := map[vserver.ServerKey]int{}
	if err := f.BeginSurvey(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Survey(context.Background(), func(k vserver.ServerKey, _ vserver.Digest) { times[k]++ }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[vserver.ServerKey]int{second: 2}, times); diff != "" {
		t.Errorf("servers shown (-want +got):\n%s", diff)
	}
	f.FailSurveys(errPlanned)
	if err := f.BeginSurvey(context.Background()); !errors.Is(err, errPlanned) {
		t.Errorf("BeginSurvey: %v, want %v", err, errPlanned)
	}
	if _, err := f.ListServers(context.Background()); err != nil {
		t.Errorf("another read: %v", err)
	}
	f.Heal()
	wantSurvey(t, s)
}

func TestFakeHangsUntilTheDeadline(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"its own": 0, "the caller's": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, want := context.Background(), hangTime
				if deadline != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, deadline)
					defer cancel()
					want = deadline
				}
				f := NewFake()
				f.HangCall(1)
				start := time.Now()
				errs := f.WriteServers(ctx, []vserver.ServerChange{{Op: vserver.Add, Key: vip, Server: roundRobin}})
				wantErrors(t, errs, 1, map[int]error{0: context.DeadlineExceeded}, "")
				wantErrors(t, errs, 1, map[int]error{0: vserver.ErrUnknown}, "")
				if took := time.Since(start); took != want {
					t.Errorf("took %s, want %s", took, want)
				}
				if f.String() != "" {
					t.Errorf("table %q, want nothing written", f)
				}
			})
		})
	}
}

func TestFakeKnowsItsSchedulers(t *testing.T) {
	f := NewFake()
	f.SetSchedulers("rr", "mh")
	for name, want := range map[string]error{"rr": nil, "mh": nil, "wrr": vserver.ErrUnsupported} {
		if err := f.Probe(context.Background(), name); !errors.Is(err, want) {
			t.Errorf("Probe(%q) = %v, want %v", name, err, want)
		}
	}
}
