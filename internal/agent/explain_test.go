package agent_test

import (
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// The mode of these tests tells the origin of a packet and the keys that it is asked for.

func (m *mode) PacketPath(p dataplane.Packet) dataplane.PacketPath {
	return dataplane.PacketPath{Steps: []string{string(p.Origin) + " to " + p.To.Key.String()}, End: dataplane.EndForwarded}
}

func (m *mode) RowsOf(keys []model.FrontendKey) (dataplane.FrontendRows, error) {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k.String() + "\n")
	}
	return dataplane.FrontendRows{Desired: map[string]string{"servers": b.String()}}, nil
}

func (m *mode) Snapshot(kind string) (func(io.Writer) error, error) {
	return func(w io.Writer) error { _, err := io.WriteString(w, kind+"\n"); return err }, nil
}

func TestExplain(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetService(service("web", "10.96.0.10"))
		w.SetService(service("web-late", "10.96.0.10"))
		hidden := service("hidden", "10.96.0.11")
		hidden.HasProxyName = true
		w.SetService(hidden)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		ask := func(text, from string) agent.Report {
			w.Helper()
			q, err := agent.ParseQuery(text, from)
			if err != nil {
				w.Fatal(err)
			}
			s, err := w.loop.Explain(w.Context(), q)
			if err != nil {
				w.Fatal(err)
			}
			return s
		}
		s := ask("default/web", "")
		if len(s.Services) != 1 || len(s.Services[0].Frontends) != 1 || len(s.Services[0].Frontends[0].Paths) != 3 || s.Rows.Desired["servers"] != "10.96.0.10:80/tcp\n" {
			w.Errorf("story of a Service: %+v", s)
		}
		s = ask("10.96.0.10:80/tcp", "192.0.2.1")
		if len(s.Services) != 2 || s.Services[1].Frontends[0].HeldBy != "default/web" || s.Services[0].Frontends[0].Paths[0].Origin != dataplane.FromOutside {
			w.Errorf("report of a contested address: %+v", s)
		}
		if s = ask("10.96.0.11", ""); len(s.Services) != 1 || s.Services[0].Skipped == "" || len(s.Services[0].Frontends) != 0 {
			w.Errorf("report of an address that is skipped: %+v", s)
		}
		if s = ask("10.96.0.99:80", ""); len(s.Services) != 0 || s.Rows.Desired["servers"] != "" {
			w.Errorf("report of an address without an owner: %+v", s)
		}
	})
}

// An address that is no endpoint any more, and drains, is not unknown.
func TestExplainWhatDrains(t *testing.T) {
	m := newMode()
	m.drains = dataplane.Drains{Climbing: 1}
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		ask := func(text string) []string {
			q, err := agent.ParseQuery(text, "")
			if err != nil {
				w.Fatal(err)
			}
			s, err := w.loop.Explain(w.Context(), q)
			if err != nil || len(s.Services) > 0 {
				w.Errorf("story %+v, error %v", s, err)
			}
			return s.Leaving
		}
		if got := ask(climbing.String()); len(got) > 0 {
			w.Errorf("what climbs is told to drain: %q", got)
		}
		w.mode.locked(func() { m.leaves = climbing })
		if diff := cmp.Diff([]string{"10.96.0.1:80/tcp of default/web"}, ask(climbing.String())); diff != "" {
			w.Errorf("(-want +got):\n%s", diff)
		}
		if got := ask("10.244.0.9:81"); len(got) > 0 {
			w.Errorf("another port drains: %q", got)
		}
	})
}

func TestParseQuery(t *testing.T) {
	for text, want := range map[string]agent.Query{
		"shop/web":          {Service: "shop/web"},
		"web":               {Service: "default/web"},
		"10.96.0.10":        {Address: netip.MustParseAddr("10.96.0.10")},
		"10.96.0.10:53/udp": {Address: netip.MustParseAddr("10.96.0.10"), Port: 53, Protocol: model.UDP},
		"10.96.0.10/tcp":    {Address: netip.MustParseAddr("10.96.0.10"), Protocol: model.TCP},
		"[fd00::a]:53":      {Address: netip.MustParseAddr("fd00::a"), Port: 53},
		"fd00::a":           {Address: netip.MustParseAddr("fd00::a")},
	} {
		if got, err := agent.ParseQuery(text, ""); err != nil || got != want {
			t.Errorf("%s: %+v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a/b/c", "10.96.0.10:53/icmp", "/web", "shop/", "10.96.0.10:99999"} {
		if got, err := agent.ParseQuery(text, ""); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
	if _, err := agent.ParseQuery("web", "here"); err == nil {
		t.Error("a source that is no address is taken")
	}
}
