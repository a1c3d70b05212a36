package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// bench is a reloader over a file, and a loop that does what it is told at once.
type bench struct {
	*testing.T
	*reloader
	path    string
	lacks   string // a scheduler
	refuses map[string]error
	calls   []string
	logs    *observer.ObservedLogs
}

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func newBench(t *testing.T, text string, args ...string) *bench {
	core, logs := observer.New(zap.DebugLevel)
	b := &bench{T: t, path: filepath.Join(t.TempDir(), "config.conf"), logs: logs}
	b.write(text)
	flags, defaults := pflag.NewFlagSet("test", pflag.ContinueOnError), config.Defaults()
	config.Bind(flags, &defaults)
	if err := flags.Parse(append([]string{"--config", b.path}, args...)); err != nil {
		t.Fatal(err)
	}
	loader := config.NewLoader(flags)
	loaded, err := loader.Load("node-a")
	if err != nil {
		t.Fatal(err)
	}
	b.reloader = &reloader{
		log: zap.New(core), level: zap.NewAtomicLevel(), flags: flags, loader: loader, host: "node-a",
		live: newLiveConfig(loaded.Config), asked: loaded.Config, metrics: telemetry.New(),
		steps: steps{reconfigure: func(ctx context.Context, change func(context.Context) error) error { return change(ctx) },
			pick: b.pick, exclude: b.exclude, retune: b.retune},
	}
	return b
}

func (b *bench) write(text string) {
	b.Helper()
	if err := os.WriteFile(b.path, []byte(header+text), 0o600); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) pick(_ context.Context, want scheduler.Spec) (scheduler.Spec, error) {
	b.calls = append(b.calls, "pick "+want.Name())
	if want.Name() == "lblc" {
		return want, errors.New("no answer")
	}
	if want.Name() == b.lacks {
		return scheduler.MustParse("rr"), nil
	}
	return want, nil
}

func (b *bench) exclude(_ context.Context, cidrs []netip.Prefix) error {
	b.calls = append(b.calls, fmt.Sprint("exclude ", cidrs))
	return nil
}

func (b *bench) retune(_ context.Context, from, to config.Config) map[string]error {
	b.calls = append(b.calls, fmt.Sprintf("retune strict ARP %t to %t", from.StrictARP, to.StrictARP))
	return b.refuses
}

func TestReload(t *testing.T) {
	for _, tt := range []struct {
		name, before, after string
		args                []string
		lacks               string
		refuses             map[string]error
		outcome             telemetry.Reload
		calls               []string
		scheduler           string // in force
		fails               string
		says                string // a line of the log
	}{
		{name: "another scheduler", after: "ipvs: {scheduler: wlc}", outcome: telemetry.Applied,
			calls: []string{"pick wlc", "retune strict ARP false to false"}, scheduler: "wlc", says: "settings changed [ipvs.scheduler]"},
		{name: "one that the kernel lacks", after: "ipvs: {scheduler: mh}", lacks: "mh", outcome: telemetry.Applied,
			calls: []string{"pick mh", "retune strict ARP false to false"}, scheduler: "rr"},
		{name: "one that cannot be tried", after: "ipvs: {scheduler: lblc, strictARP: true}", outcome: telemetry.Refused,
			calls: []string{"pick lblc"}, scheduler: "rr", fails: "scheduler lblc: no answer"},
		{name: "strict ARP and ranges", before: "ipvs: {excludeCIDRs: [10.0.0.0/8]}", after: "ipvs: {strictARP: true}", outcome: telemetry.Applied,
			calls: []string{"exclude []", "retune strict ARP false to true"}, scheduler: "rr", says: "settings changed [ipvs.excludeCIDRs ipvs.strictARP]"},
		{name: "strict ARP in a container that may not", after: "ipvs: {strictARP: true, scheduler: sed}", outcome: telemetry.RestartNeeded,
			refuses: map[string]error{"ipvs.strictARP": errors.New("read-only file system")},
			calls:   []string{"pick sed", "retune strict ARP false to true"}, scheduler: "sed",
			says: "changed settings are not in use until a restart [ipvs.strictARP]"},
		{name: "what needs a restart", after: "clusterCIDR: 10.244.0.0/16\nipvs: {scheduler: sed}", outcome: telemetry.RestartNeeded,
			calls: []string{"pick sed", "retune strict ARP false to false"}, scheduler: "sed",
			says: "changed settings are not in use until a restart [clusterCIDR]"},
		{name: "a mistake", after: "ipvs: {scheduler: fastest, strictARP: true}", outcome: telemetry.Refused, scheduler: "rr", fails: "ipvs.scheduler"},
		{name: "a flag wins", args: []string{"--ipvs-scheduler=nq"}, after: "ipvs: {scheduler: wlc}", outcome: telemetry.Applied, scheduler: "nq"},
		{name: "nothing but a comment", after: "# hello", outcome: telemetry.Applied, scheduler: "rr"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.before, tt.args...)
			b.lacks, b.refuses = tt.lacks, tt.refuses
			b.write(tt.after)
			outcome, err := b.reload(t.Context())
			if outcome != tt.outcome || (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s, error %v; want %s, %q", outcome, err, tt.outcome, tt.fails)
			}
			if diff := cmp.Diff(tt.calls, b.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			c := b.live.now()
			want := tt.scheduler
			if got := b.inForce(c); got != want {
				t.Errorf("scheduler in force %s, want %s", got, want)
			}
			var lines []string
			for _, e := range b.logs.All() {
				lines = append(lines, fmt.Sprint(e.Message, " ", e.ContextMap()["settings"]))
			}
			if !strings.Contains(strings.Join(lines, "\n"), tt.says) {
				t.Errorf("log %q, want %q", lines, tt.says)
			}
		})
	}
}

func (b *bench) inForce(c config.Config) string {
	if c.Scheduler.IsZero() {
		return scheduler.Default
	}
	return c.Scheduler.Name()
}

// After a mistake the next good file is compared with what is in force.
func TestReloadAfterAMistake(t *testing.T) {
	b := newBench(t, "ipvs: {scheduler: wlc}")
	b.write("ipvs: [")
	if _, err := b.reload(t.Context()); err == nil {
		t.Fatal("a broken file is taken")
	}
	b.write("ipvs: {scheduler: wlc}")
	if outcome, err := b.reload(t.Context()); err != nil || outcome != telemetry.Applied || len(b.calls) > 0 {
		t.Errorf("%s, error %v, calls %v", outcome, err, b.calls)
	}
	b.write("logging: {verbosity: 4}")
	if _, err := b.reload(t.Context()); err != nil || b.level.Level() != zap.DebugLevel || b.inForce(b.live.now()) != "rr" {
		t.Errorf("error %v, level %s, scheduler %s", err, b.level.Level(), b.inForce(b.live.now()))
	}
}

// A scheduler that the kernel lacks stays replaced while other settings change.
func TestReloadKeepsTheReplacement(t *testing.T) {
	b := newBench(t, "")
	b.lacks = "mh"
	for _, text := range []string{"ipvs: {scheduler: mh}", "ipvs: {scheduler: mh, strictARP: true}"} {
		b.write(text)
		if _, err := b.reload(t.Context()); err != nil || b.inForce(b.live.now()) != "rr" {
			t.Fatalf("%s: error %v, scheduler %s", text, err, b.inForce(b.live.now()))
		}
	}
	if n := strings.Count(strings.Join(b.calls, " "), "pick"); n != 1 {
		t.Errorf("tried %d times: %v", n, b.calls)
	}
}

// How long connections go on, and for how long IPVS keeps them, changes in place.
func TestReloadOfTimes(t *testing.T) {
	const own = "---\napiVersion: kube-ipvs.io/v1alpha1\nkind: KubeIPVSConfiguration\n"
	b := newBench(t, own+"drain: 5m\n")
	for _, step := range []struct {
		text    string
		refuses map[string]error
		outcome telemetry.Reload
		want    string
	}{
		{own + "drain: 0s\n", nil, telemetry.Applied, "0s false"},
		{own + "ipvsTimeouts: recommended\n", nil, telemetry.Applied, "30s true"},
		{own + "drain: 2h\n", nil, telemetry.Refused, "30s true"},
		{own + "drain: 1h\n", map[string]error{"ipvsTimeouts": errors.New("no answer")}, telemetry.RestartNeeded, "1h0m0s true"},
	} {
		b.write(step.text)
		b.refuses = step.refuses
		outcome, err := b.reload(t.Context())
		c := b.live.now()
		if got := fmt.Sprint(c.Drain, " ", c.Timeouts.Recommended); outcome != step.outcome || got != step.want {
			t.Errorf("%s: %s, error %v, in force %s; want %s, %s", step.text, outcome, err, got, step.outcome, step.want)
		}
	}
}
