package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/top"
)

// shopKeeper is an agent that knows of one Service, with an endpoint that drains.
type shopKeeper struct{}

func (shopKeeper) Status(context.Context) (agent.Status, error) { return agent.Status{}, nil }

func (shopKeeper) Services(context.Context) ([]model.ServiceID, error) {
	return []model.ServiceID{{Namespace: "shop", Name: "cart"}}, nil
}

func (shopKeeper) ServicesInfo(_ context.Context, ids []model.ServiceID, visit func(agent.ServiceInfo)) error {
	key := model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}
	visit(agent.ServiceInfo{ID: ids[0], Frontends: []model.Frontend{{Key: key, Kind: model.KindClusterIP}}})
	return nil
}

func (shopKeeper) Pending(context.Context, int) ([]dataplane.PendingTable, error) { return nil, nil }

func (shopKeeper) Moving(_ context.Context, list dataplane.MovingList) (dataplane.MovingList, error) {
	key := model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}
	to := netip.MustParseAddrPort("10.0.0.2:8080")
	list.Add(to, func() dataplane.Moving {
		return dataplane.Moving{Frontend: key, Backend: to, Until: time.Now().Add(time.Hour)}
	})
	return list, nil
}

// agentAt serves at a socket.
func agentAt(t *testing.T) *inspect.Client {
	t.Helper()
	return clientOf(t, shopKeeper{})
}

// modeKeeper is an agent in some mode, with one Service at the address that tests trace.
type modeKeeper struct {
	shopKeeper
	mode string
}

func (k modeKeeper) Status(context.Context) (agent.Status, error) {
	return agent.Status{Mode: k.mode}, nil
}

func (modeKeeper) ServicesInfo(_ context.Context, ids []model.ServiceID, visit func(agent.ServiceInfo)) error {
	at := netip.MustParseAddrPort(traced)
	key := model.FrontendKey{Addr: at.Addr(), Port: at.Port(), Protocol: model.TCP}
	backends := []model.Backend{{Addr: netip.MustParseAddrPort(tracedBackend), Weight: 1}}
	visit(agent.ServiceInfo{ID: ids[0], Frontends: []model.Frontend{{Key: key, Kind: model.KindClusterIP, Backends: backends}}})
	return nil
}

func agentOfMode(t *testing.T, mode string) *inspect.Client {
	t.Helper()
	return clientOf(t, modeKeeper{mode: mode})
}

func clientOf(t *testing.T, k inspect.Reader) *inspect.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := inspect.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- inspect.Serve(ctx, l, inspect.Handler(k, http.NotFoundHandler(), nil)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return inspect.NewClient(path)
}

// one runs the verb on a kernel of the test's own.
func (f topFlags) one(t *testing.T, client *inspect.Client, service string) (out, notes string, err error) {
	t.Helper()
	var o, n bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&o)
	cmd.SetErr(&n)
	from := &top.Source{Kernel: vservertest.NewLoaded(t.Context()), Names: func(ctx context.Context) (top.Names, error) { return namesFrom(ctx, client) }}
	err = f.show(cmd, from, service)
	return o.String(), n.String(), err
}

func TestTopOnce(t *testing.T) {
	f := topFlags{once: true, interval: time.Millisecond, sort: "bytes", output: "text"}
	out, notes, err := f.one(t, agentAt(t), "")
	if lines := strings.Split(out, "\n"); err != nil || notes != "" || len(lines) != 3 || !strings.HasPrefix(lines[1], "shop/cart ") || !strings.Contains(lines[1], " 2 -1 ") {
		t.Errorf("error %v, notes %q, table:\n%s", err, notes, out)
	}
	out, _, err = f.one(t, agentAt(t), "shop/cart")
	if err != nil || !strings.Contains(out, "draining 1h0m0s") || !strings.Contains(out, "10.0.0.1:8080") {
		t.Errorf("error %v, backends:\n%s", err, out)
	}
	// Without an agent addresses stand for names, and why is said.
	f.output = "json"
	out, notes, err = f.one(t, inspect.NewClient("/nonexistent/agent.sock"), "")
	var got top.Report
	if jsonErr := json.Unmarshal([]byte(out), &got); err != nil || jsonErr != nil || len(got.Services) != 1 || got.Services[0].Name != "10.96.0.1:80/tcp" ||
		!strings.Contains(notes, "no agent is running") {
		t.Errorf("error %v, %v, notes %q, document:\n%s", err, jsonErr, notes, out)
	}
}

func TestTopFlags(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"--once --sort weight", "--sort"}, {"--once --interval 10ms", "--interval"}, {"--once --limit -1", "--limit"},
		{"--once -o yaml", "--output"}, {"-o json", "--once"}, {"--limit 3", "--once"}, {"a/b c/d", "at most 1"},
	} {
		if _, err := try(append([]string{"top"}, strings.Fields(tt.line)...)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("top %s: error %v, want one of %s", tt.line, err, tt.want)
		}
	}
}
