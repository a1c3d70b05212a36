package top_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
	"github.com/kube-ipvs/kube-ipvs/internal/top"
)

func server(text string) vserver.ServerKey {
	ap := netip.MustParseAddrPort(text)
	return vserver.ServerKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: vserver.ProtocolTCP}
}

func destination(of, text string) vserver.DestinationKey {
	ap := netip.MustParseAddrPort(text)
	return vserver.DestinationKey{Server: server(of), Addr: ap.Addr(), Port: ap.Port()}
}

// node is a kernel and an agent.
type node struct {
	*vservertest.Fake
	names    top.Names
	errNames error
	asked    int
}

// newNode has shop/cart behind two addresses with a draining backend, shop/front, kube-system/dns,
// and a server of another program.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Fake: vservertest.NewFake(), names: top.Names{Of: map[vserver.ServerKey]top.Name{}, Draining: map[vserver.DestinationKey]time.Time{}}}
	n.add(t, "shop", "cart", "10.96.0.10:80", 1, "10.244.0.5:8080", "10.244.1.7:8080")
	n.add(t, "shop", "cart", "192.0.2.1:30080", 1, "10.244.0.5:8080", "10.244.1.7:8080")
	n.add(t, "shop", "cart", "10.96.0.10:80", 0, "10.244.2.9:8080")
	n.add(t, "shop", "front", "[fd00:96::20]:443", 5, "[fd00:244::6]:8443")
	n.add(t, "kube-system", "dns", "10.96.0.2:53", 1)
	n.add(t, "", "", "203.0.113.1:25", 1, "203.0.113.9:25")
	n.names.Draining[destination("10.96.0.10:80", "10.244.2.9:8080")] = time.Now().Add(20 * time.Second)
	n.SetConnections(destination("10.96.0.10:80", "10.244.0.5:8080"), vserver.Connections{Active: 30, Inactive: 7})
	n.SetConnections(destination("10.96.0.10:80", "10.244.1.7:8080"), vserver.Connections{Active: 12, Inactive: 1500})
	n.SetConnections(destination("10.96.0.10:80", "10.244.2.9:8080"), vserver.Connections{Active: 3})
	n.SetConnections(destination("192.0.2.1:30080", "10.244.0.5:8080"), vserver.Connections{Active: 1})
	n.SetConnections(destination("[fd00:96::20]:443", "[fd00:244::6]:8443"), vserver.Connections{Active: 200_000})
	return n
}

func (n *node) add(t *testing.T, namespace, name, vip string, weight uint16, backends ...string) {
	t.Helper()
	errs := n.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: server(vip), Server: vserver.Server{Scheduler: "rr"}}})
	for _, b := range backends {
		errs = append(errs, n.WriteDestinations(t.Context(), []vserver.DestinationChange{{Op: vserver.Add, Key: destination(vip, b), Destination: vserver.Destination{Weight: weight}}})...)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if name != "" {
		n.names.Of[server(vip)] = top.Name{Namespace: namespace, Name: name}
	}
}

func (n *node) source() *top.Source {
	return &top.Source{Kernel: n, Names: func(context.Context) (top.Names, error) { n.asked++; return n.names, n.errNames }}
}

// carries has traffic go on for as long as a test sleeps: each two seconds of the bubble bring
// the same again.
func (n *node) carries(vip, backend string, connections uint64) {
	n.Carry(destination(vip, backend), vserver.Traffic{Connections: connections, PacketsIn: 10 * connections, PacketsOut: 8 * connections, BytesIn: 1000 * connections, BytesOut: 15_000 * connections})
}

func (n *node) traffic() {
	n.carries("10.96.0.10:80", "10.244.0.5:8080", 2_000)
	n.carries("10.96.0.10:80", "10.244.1.7:8080", 1)
	n.carries("192.0.2.1:30080", "10.244.0.5:8080", 7)
	n.carries("[fd00:96::20]:443", "[fd00:244::6]:8443", 90)
}

const every = 2 * time.Second

// watch is a Screen after some samples, with a second of traffic between them.
func watch(t *testing.T, n *node, s top.Screen, samples int) top.Screen {
	t.Helper()
	src := n.source()
	for i := range samples {
		if i > 0 {
			time.Sleep(every) // on the clock of the bubble
			n.traffic()
		}
		s = s.Sampled(src.Take(t.Context(), s.Asks()))
	}
	return s
}

// seen is a view with its escapes as marks.
func seen(s top.Screen) string {
	return strings.NewReplacer("\x1b[7m", "«", "\x1b[0m", "»").Replace(s.View())
}

func press(s top.Screen, keys ...string) top.Screen {
	for _, k := range keys {
		s, _ = s.Key(k)
	}
	return s
}

func bubble(t *testing.T, name string, run func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
}

// The screen after each key of a user. Reverse is between « and ».
func TestViews(t *testing.T) {
	for _, tt := range []struct {
		name          string
		width, height int
		samples       int
		before, after []string
	}{
		{name: "first sample", width: 110, height: 10, samples: 1},
		{name: "services", width: 110, height: 10, samples: 2},
		{name: "by name", width: 110, height: 10, samples: 2, after: []string{"n", "down"}},
		{name: "by skew, narrow", width: 60, height: 8, samples: 2, after: []string{"s", "end"}},
		{name: "filter being typed", width: 110, height: 9, samples: 2, after: []string{"/", "c", "a", "x", "backspace"}},
		{name: "filter by address, paused", width: 110, height: 9, samples: 2, after: []string{"/", "2", "0", "3", ".", "enter", "space"}},
		{name: "backends, first sample", width: 110, height: 9, samples: 2, after: []string{"enter"}},
		{name: "backends", width: 110, height: 9, samples: 3, before: []string{"n", "down", "down", "enter"}, after: []string{"c"}},
		{name: "and back", width: 110, height: 9, samples: 3, before: []string{"n", "down", "down", "enter"}, after: []string{"esc"}},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			n := newNode(t)
			s := watch(t, n, top.Screen{Every: every, Sort: top.ByConnections}.Resized(tt.width, tt.height), 1)
			s = press(s, tt.before...)
			if tt.samples > 1 {
				time.Sleep(every) // on the clock of the bubble
				n.traffic()
				s = watch(t, n, s, tt.samples-1)
			}
			view := seen(press(s, tt.after...))
			if got := len(strings.Split(view, "\n")); got != tt.height {
				t.Errorf("%d lines, want %d", got, tt.height)
			}
			golden.Check(t, strings.NewReplacer(" ", "-", ",", "").Replace(tt.name)+".txt", view+"\n")
		})
	}
}

// The line that was chosen stays, whatever comes before it, and is on the screen.
func TestChosenLineStays(t *testing.T) {
	bubble(t, "of many", func(t *testing.T) {
		n := &node{Fake: vservertest.NewFake(), names: top.Names{Of: map[vserver.ServerKey]top.Name{}}}
		for i := range 50 {
			n.add(t, "many", fmt.Sprintf("s%02d", i), fmt.Sprintf("10.96.1.%d:80", i), 1, "10.244.0.1:80")
		}
		s := watch(t, n, top.Screen{Every: every, Sort: top.ByName}.Resized(100, 14), 1)
		for _, step := range []struct {
			keys string
			want string
		}{{"down down", "s02"}, {"pgdown", "s12"}, {"up", "s11"}, {"end", "s49"}, {"down", "s49"}, {"pgup pgup", "s29"}, {"home", "s00"}, {"up", "s00"}, {"pgdown", "s10"}} {
			s = press(s, strings.Fields(step.keys)...)
			if !strings.Contains(seen(s), "\n«many/"+step.want) {
				t.Fatalf("after %s: %s is not chosen:\n%s", step.keys, step.want, seen(s))
			}
		}
		for i := range 9 {
			n.add(t, "few", fmt.Sprintf("a%d", i), fmt.Sprintf("10.96.2.%d:80", i), 1)
		}
		time.Sleep(10 * time.Second) // on the clock of the bubble: for the names
		if s = watch(t, n, s, 1); !strings.Contains(seen(s), "\n«many/s10") {
			t.Errorf("others came, and s10 is not chosen:\n%s", seen(s))
		}
	})
}

func TestKeysThatEnd(t *testing.T) {
	for _, tt := range []struct {
		keys []string
		want top.Action
	}{{[]string{"q"}, top.Quit}, {[]string{"ctrl+c"}, top.Quit}, {[]string{"/", "q"}, top.Nothing}, {[]string{"/", "ctrl+c"}, top.Quit}, {[]string{"enter", "q"}, top.Quit}, {[]string{"x"}, top.Nothing}} {
		s, act := top.Screen{}, top.Nothing
		for _, k := range tt.keys {
			s, act = s.Key(k)
		}
		if act != tt.want {
			t.Errorf("%v: action %v, want %v", tt.keys, act, tt.want)
		}
	}
}

// Values that cannot be read are reported, and never shown as zero.
func TestTroubles(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail func(*node)
		want []string
	}{
		{"no agent", func(n *node) { n.names, n.errNames = top.Names{}, errors.New("no agent is running") }, []string{"! no agent is running", "10.96.0.10:80/tcp"}},
		{"no list", func(n *node) { n.FailCall(2, vserver.ErrUnsupported) }, []string{"! list connections of servers: not supported", "?  "}},
		{"no counters", func(n *node) { n.FailCall(1, vserver.ErrInterrupted) }, []string{"! list traffic of servers: table changed", "shop/cart"}},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			n := newNode(t)
			s := top.Screen{Every: every, Sort: top.ByName}.Resized(120, 12)
			if n.errNames == nil {
				s = watch(t, n, s, 2)
			}
			tt.fail(n)
			s = s.Sampled(n.source().Take(t.Context(), nil))
			for _, want := range tt.want {
				if !strings.Contains(s.View(), want) {
					t.Errorf("no %q in\n%s", want, seen(s))
				}
			}
		})
	}
}

// Names are read at intervals, and the previous names are used while the agent does not answer.
func TestNamesAreKept(t *testing.T) {
	bubble(t, "while the agent is away", func(t *testing.T) {
		n := newNode(t)
		src := n.source()
		for range 3 {
			if _, err := src.Take(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if n.asked != 1 {
			t.Errorf("asked %d times at once, want 1", n.asked)
		}
		time.Sleep(time.Minute) // on the clock of the bubble
		n.errNames = errors.New("stuck")
		s, err := src.Take(t.Context(), nil)
		if err != nil || n.asked != 2 || !errors.Is(s.Unnamed, n.errNames) || len(s.Names.Of) != len(n.names.Of) {
			t.Errorf("asked %d times, %d names, trouble %v, error %v", n.asked, len(s.Names.Of), s.Unnamed, err)
		}
	})
}

func TestRatesOfServersThatWereMadeAgain(t *testing.T) {
	k := server("10.96.0.1:80")
	at := time.Now()
	sample := func(after time.Duration, connections uint64) top.Sample {
		return top.Sample{At: at.Add(after), Servers: map[vserver.ServerKey]vserver.ServerTraffic{k: {Traffic: vserver.Traffic{Connections: connections, BytesIn: connections}}}}
	}
	for name, tt := range map[string]struct {
		was, is uint64
		want    float64
	}{"goes on": {100, 140, 10}, "made again": {100, 8, 2}, "nothing": {100, 100, 0}} {
		got := top.Services(sample(0, tt.was), sample(4*time.Second, tt.is))
		if len(got) != 1 || got[0].Connections != tt.want || got[0].BytesIn != tt.want || got[0].Load != nil {
			t.Errorf("%s: %+v, want %v a second and no load", name, got, tt.want)
		}
	}
}

func report(t *testing.T, q top.Question) (top.Report, error) {
	t.Helper()
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // traffic goes on in steps, as the kernel adds it up
		for {
			select {
			case <-time.After(every):
				n.traffic()
			case <-ctx.Done():
				return
			}
		}
	}()
	q.Interval = every + every/2
	return top.Once(ctx, n.source(), q, func(err error) { t.Error(err) })
}

func TestOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		q    top.Question
	}{
		{"once", top.Question{Sort: top.ByBytes}},
		{"once of a namespace", top.Question{Sort: top.ByName, Namespace: "shop"}},
		{"once limited", top.Question{Sort: top.ByActive, Limit: 1}},
		{"once backends", top.Question{Sort: top.ByConnections, Service: "shop/cart"}},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			r, err := report(t, tt.q)
			if err != nil {
				t.Fatal(err)
			}
			var text, document bytes.Buffer
			if err := errors.Join(r.WriteText(&text), r.WriteJSON(&document)); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, strings.ReplaceAll(tt.name, " ", "-")+".txt", text.String())
			valid(t, document.Bytes())
		})
	}
	bubble(t, "of a Service that is not there", func(t *testing.T) {
		if _, err := report(t, top.Question{Service: "shop/none"}); err == nil || !strings.Contains(err.Error(), "shop/none") {
			t.Errorf("error %v", err)
		}
	})
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile("../../manifests/schemas/top.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valid holds a document against the schema, and the schema against the document: one
// that lacks a field is no document of ours.
func valid(t *testing.T, document []byte) {
	t.Helper()
	s := schema(t)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, document)
	}
	var broken map[string]any
	if err := json.Unmarshal(document, &broken); err != nil {
		t.Fatal(err)
	}
	delete(broken, "seconds")
	if s.Validate(broken) == nil {
		t.Error("the schema takes a document without a field that has to be there")
	}
}

// The fields of both documents are the same: the schema lacks none, and has none too many.
func TestSchemaHasEveryField(t *testing.T) {
	bubble(t, "of a report", func(t *testing.T) {
		r, err := report(t, top.Question{Sort: top.ByConnections, Service: "shop/cart"})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Services, Backends []map[string]any
		}
		if err := json.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		defs := schema(t)
		for what, have := range map[string]map[string]any{"services": got.Services[0], "backends": draining(got.Backends)} {
			of := defs.Properties[what].Items2020.Ref.Properties
			var want, fields []string
			for f := range of {
				want = append(want, f)
			}
			for f := range have {
				fields = append(fields, f)
			}
			if diff := cmp.Diff(want, fields, cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Errorf("%s (-schema +report):\n%s", what, diff)
			}
		}
	})
}

func draining(list []map[string]any) map[string]any {
	for _, b := range list {
		if b["draining"] == true {
			return b
		}
	}
	return nil
}

// BenchmarkScreen is what one sample of 10,000 Services costs besides the kernel's part.
func BenchmarkScreen(b *testing.B) {
	s := top.Sample{Servers: map[vserver.ServerKey]vserver.ServerTraffic{}, Loads: map[vserver.ServerKey]vserver.Load{}, Names: top.Names{Of: map[vserver.ServerKey]top.Name{}}}
	for i := range 10_000 {
		k := server(fmt.Sprintf("10.96.%d.%d:80", i/250, i%250))
		s.Servers[k] = vserver.ServerTraffic{Scheduler: "rr", Traffic: vserver.Traffic{Connections: uint64(i)}}
		s.Loads[k] = vserver.Load{Destinations: 10}
		s.Names.Of[k] = top.Name{Namespace: "many", Name: fmt.Sprintf("s%05d", i)}
	}
	screen := top.Screen{Sort: top.ByBytes}.Resized(120, 50)
	b.ReportAllocs()
	for b.Loop() {
		s.At = s.At.Add(time.Second)
		screen = screen.Sampled(s, nil)
		_ = screen.View()
	}
}
