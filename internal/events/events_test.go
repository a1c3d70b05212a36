package events_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

func TestEventAsTheAPIGetsIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  func(*rig)
	}{
		{"node", func(r *rig) { r.Node(events.Starting, "") }},
		{"service", func(r *rig) {
			r.Service(svc("web"), events.VIPConflictsWithNode, "192.0.2.1 belongs to 100% of node n2")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{})
				tt.say(r)
				time.Sleep(time.Second) // said before it is sent
				r.run()
				golden.Check(t, "event_"+tt.name+".json", pretty(t, r.only()))
				r.wantDropped(0)
				r.end()
			})
		})
	}
}

func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{Limits: events.Limits{Burst: 100}})
		r.run()
		for _, k := range []events.Kind{events.Starting, events.FailedToStartProxierHealthcheck, events.FailedToStartMetricServer,
			events.SchedulerUnavailable, events.InvalidConfiguration, events.ConfigurationReloaded, events.RestartNeeded, events.NodeAnnotationRefused,
			events.SysctlRefused, events.ProxyModeImplied, events.RulesInNFTables, events.FirewallBlocksServices} {
			r.Node(k, "")
			r.pass(0)
		}
		for _, k := range []events.Kind{events.VIPConflictsWithNode, events.AddressConflict, events.ExternalIPRefused, events.TooManyFrontends, events.TooManySourceRanges, events.AnnotationRefused,
			events.FailedToStartServiceHealthcheck} {
			r.Service(svc("web"), k, "")
			r.pass(0)
		}
		var lines strings.Builder
		for _, e := range r.created {
			fmt.Fprintf(&lines, "%-8s %-32s %-15s %s\n", e.Type, e.Reason, e.Action, e.Regarding.Kind)
		}
		golden.Check(t, "kinds.txt", lines.String())
		r.end()
	})
}

func TestNoteFitsIntoTheAPI(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
	}{
		{"short", "port 80", "port 80"},
		{"at the limit", strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		{"over the limit", strings.Repeat("x", 1025), strings.Repeat("x", 1024)},
		{"rune across the limit", strings.Repeat("x", 1022) + "→→", strings.Repeat("x", 1022)},
		{"rune up to the limit", strings.Repeat("x", 1021) + "→→", strings.Repeat("x", 1021) + "→"},
		{"not text", "value \xff\xfe", "value \uFFFD"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{})
				r.run()
				r.Node(events.InvalidConfiguration, tt.text)
				r.pass(0)
				if diff := cmp.Diff(tt.want, r.only().Note); diff != "" {
					t.Errorf("note (-want +got):\n%s", diff)
				}
				r.end()
			})
		})
	}
}

// A node name may have 253 bytes, as the name of an Event, and the instance 128.
func TestLongNodeNameIsCutInTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{Node: strings.Repeat("n", 253)})
		r.run()
		r.Node(events.Starting, "")
		r.pass(0)
		if got, want := r.only().ReportingInstance, "kube-proxy-"+strings.Repeat("n", 117); got != want {
			t.Errorf("instance %q, want %q", got, want)
		}
		if got := r.only().Regarding.Name; len(got) != 253 || !utf8.ValidString(got) {
			t.Errorf("the event is about node %q", got)
		}
		if got := validation.IsDNS1123Subdomain(r.only().Name); len(got) > 0 {
			t.Errorf("the event has the name %q: %v", r.only().Name, got)
		}
		r.end()
	})
}

func TestUIDOfTheService(t *testing.T) {
	const cached, latest = `shop metadata.name=web "0"`, `shop metadata.name=web ""`
	for _, tt := range []struct {
		name    string
		gone    func(version string) bool
		lookups []string
		events  int
	}{
		{"in the cache of the server", nil, []string{cached}, 1},
		{"new to the cache of the server", func(v string) bool { return v == "0" }, []string{cached, latest}, 1},
		{"deleted meanwhile", func(string) bool { return true }, []string{cached, latest}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{})
				r.gone = tt.gone
				r.run()
				r.Service(svc("web"), events.AddressConflict, "held by shop/old")
				r.pass(0)
				if diff := cmp.Diff(tt.lookups, r.lookups); diff != "" {
					t.Errorf("lookups (-want +got):\n%s", diff)
				}
				if r.count() != tt.events {
					t.Errorf("%d events, want %d", r.count(), tt.events)
				}
				r.wantDropped(0)
				r.end()
			})
		})
	}
}

func TestServiceThatIsNoObjectIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{})
		r.run()
		r.Service(model.ServiceID{Origin: model.FromFile, Namespace: "shop", Name: "web"}, events.AddressConflict, "from a manifest")
		r.Service(svc("web"), events.AddressConflict, "from the API")
		r.pass(time.Hour)
		r.wantNotes("from the API")
		r.end()
	})
}

func TestNilRecorderDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *events.Recorder
		r.Service(svc("web"), events.AddressConflict, "x")
		r.Node(events.Starting, "x")
		if got := r.Dropped(); got != 0 {
			t.Errorf("%d messages dropped, want 0", got)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		began := time.Now()
		if err := r.Run(ctx); err != nil || time.Since(began) != time.Minute {
			t.Errorf("Run returned %v after %v, want nil when its context ends", err, time.Since(began))
		}
	})
}
