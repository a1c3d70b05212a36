package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

func fix(module string) string { return "modprobe " + module }

// states runs checks and prints one line each.
func states(t *testing.T, checks []tune.Check) string {
	t.Helper()
	var b strings.Builder
	for _, v := range tune.RunChecks(t.Context(), checks) {
		fmt.Fprintf(&b, "%s: %s\n", v.Name, v.State)
	}
	return b.String()
}

// The exit status says what the agent would do: a missing scheduler costs it the
// choice and no more, as long as round robin is there.
func TestCheckSchedulers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		want   string
		lacks  string // schedulers, or all
		broken error
		states string
		unfit  bool
	}{
		{name: "all there", want: "mh", states: "ipvs scheduler mh: ok\nipvs scheduler rr: ok\n"},
		{name: "the default alone", want: "rr", states: "ipvs scheduler rr: ok\n"},
		{name: "no mh", want: "mh", lacks: "mh", states: "ipvs scheduler mh: warning\nipvs scheduler rr: ok\n"},
		{name: "no ipvs", want: "mh", lacks: "mh rr", states: "ipvs scheduler mh: warning\nipvs scheduler rr: missing\n", unfit: true},
		{name: "no rr", want: "rr", lacks: "rr", states: "ipvs scheduler rr: missing\n", unfit: true},
		{name: "no answer", want: "mh", broken: errors.New("timeout"), states: "ipvs scheduler mh: failed\nipvs scheduler rr: failed\n", unfit: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checks := schedulerChecks(fix, scheduler.MustParse(tt.want), func(_ context.Context, name string) error {
				if strings.Contains(tt.lacks, name) {
					return fmt.Errorf("probe %s: %w", name, vserver.ErrUnsupported)
				}
				return tt.broken
			})
			if diff := cmp.Diff(tt.states, states(t, checks)); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			if err := unfit(config.Config{Mode: config.ModeIPVS}, tune.RunChecks(t.Context(), checks)); (err != nil) != tt.unfit {
				t.Errorf("unfit: %v, want %t", err, tt.unfit)
			}
		})
	}
}

// Sets of a family that the agent leaves out are not asked for.
func TestCheckSets(t *testing.T) {
	no6 := func(_ context.Context, s ipset.Set) error {
		if s.Family == ipset.IPv6 {
			return fmt.Errorf("revision: %w", ipset.ErrUnsupported)
		}
		return nil
	}
	for _, tt := range []struct {
		name   string
		served []model.Family
		states string
	}{
		{"IPv4 alone", []model.Family{model.IPv4}, `sets of type hash:ip,port,ip, inet: ok
sets of type hash:ip,port, inet: ok
sets of type hash:ip,port,net, inet: ok
sets of type bitmap:port: ok
sets of type hash:ip, inet: ok
`},
		{"both", []model.Family{model.IPv4, model.IPv6}, `sets of type hash:ip,port,ip, inet6: missing
sets of type hash:ip,port,ip, inet: ok
sets of type hash:ip,port, inet6: missing
sets of type hash:ip,port, inet: ok
sets of type hash:ip,port,net, inet6: missing
sets of type hash:ip,port,net, inet: ok
sets of type bitmap:port: ok
sets of type hash:ip, inet6: missing
sets of type hash:ip, inet: ok
`},
		{"IPv6 alone needs sets of ports, too", []model.Family{model.IPv6}, `sets of type hash:ip,port,ip, inet6: missing
sets of type hash:ip,port, inet6: missing
sets of type hash:ip,port,net, inet6: missing
sets of type bitmap:port: ok
sets of type hash:ip, inet6: missing
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.states, states(t, setChecks(fix, tt.served, no6))); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFamilyLeftOutIsSaid(t *testing.T) {
	if err := leftOut([]model.Family{model.IPv4, model.IPv6}); err != nil {
		t.Error(err)
	}
	if err := leftOut([]model.Family{model.IPv4}); err == nil || !strings.HasPrefix(err.Error(), "IPv6 is left out") {
		t.Errorf("error %v", err)
	}
}

func TestCheckSaysThatModulesStay(t *testing.T) {
	if help := execute(t, "check", "--help"); !strings.Contains(help, "are loaded and stay loaded") {
		t.Errorf("not a word about modules in\n%s", help)
	}
}
