package daemon

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/fstest"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

func TestPickScheduler(t *testing.T) {
	for _, tt := range []struct {
		name    string
		has     []string // schedulers of the kernel
		modules map[string]string
		used    string // by a virtual server
		barred  string // the algorithm whose module cannot be loaded
		want    string
		picks   string
		fails   bool
		dumps   uint64 // of all servers
		writes  uint64
	}{
		{name: "tried", has: []string{"rr", "mh"}, want: "mh", picks: "mh", dumps: 1, writes: 2},
		{name: "module is live: nothing is asked", has: []string{"mh"}, modules: map[string]string{"ip_vs_mh": "live\n"}, want: "mh", picks: "mh"},
		{name: "module is on its way", has: []string{"mh"}, modules: map[string]string{"ip_vs_mh": "coming\n"}, want: "mh", picks: "mh", dumps: 1, writes: 2},
		{name: "another module", has: []string{"rr", "mh"}, modules: map[string]string{"ip_vs_rr": "live\n"}, want: "mh", picks: "mh", dumps: 1, writes: 2},
		{name: "in use: nothing is written", has: []string{"mh"}, used: "mh", want: "mh", picks: "mh", dumps: 1},
		{name: "falls back", has: []string{"rr"}, want: "mh", picks: "rr", dumps: 2, writes: 4},
		{name: "module has to be loaded first", has: []string{"rr", "lblc"}, want: "lblc", picks: "lblc", dumps: 1, writes: 2},
		{name: "module cannot be loaded: the kernel is not asked for it", has: []string{"rr", "lblc"}, barred: "lblc", want: "lblc", picks: "rr", dumps: 2, writes: 2},
		{name: "not even round robin", want: "mh", picks: "rr", fails: true, dumps: 2, writes: 4},
		{name: "round robin has no fallback", has: []string{"mh"}, want: "rr", picks: "rr", fails: true, dumps: 1, writes: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			servers, modules := vservertest.NewFake(), fstest.MapFS{}
			for m, state := range tt.modules {
				modules[m+"/initstate"] = &fstest.MapFile{Data: []byte(state)}
			}
			if tt.used != "" {
				key := vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: vserver.ProtocolTCP}
				if errs := servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: key, Server: vserver.Server{Scheduler: tt.used}}}); errs != nil {
					t.Fatal(errs)
				}
			}
			servers.SetSchedulers(tt.has...)
			before := servers.Counters()
			load := func(_ context.Context, a scheduler.Algorithm) error {
				if a.Name == tt.barred {
					return vserver.ErrUnsupported
				}
				return nil
			}
			p := picker{log: zap.NewNop(), servers: servers, modules: modules, load: load, lacking: func(_ string, err error) error { return err }}
			got, err := p.pick(t.Context(), scheduler.MustParse(tt.want))
			if got.Name() != tt.picks || tt.fails != errors.Is(err, vserver.ErrUnsupported) || !tt.fails && err != nil {
				t.Errorf("picked %s, error %v; want %s, failure %t", got, err, tt.picks, tt.fails)
			}
			after := servers.Counters()
			if dumps, writes := after.Dumps-before.Dumps, after.Rows-before.Rows; dumps != tt.dumps || writes != tt.writes {
				t.Errorf("%d dumps and %d writes, want %d and %d", dumps, writes, tt.dumps, tt.writes)
			}
		})
	}
}
