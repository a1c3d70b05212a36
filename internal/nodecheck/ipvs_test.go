package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

func fix(module string) string { return "modprobe " + module }

// states runs checks and returns a line for each.
func states(t *testing.T, checks []diagnosis.Check) string {
	t.Helper()
	var b strings.Builder
	for _, v := range diagnosis.Run(t.Context(), checks) {
		fmt.Fprintf(&b, "%s: %s\n", v.Name, v.State)
	}
	return b.String()
}

// Rules in nftables need no module of ipset or iptables, so none is asked for.
func TestModulesOfRules(t *testing.T) {
	for rules, want := range map[config.Rules]bool{config.RulesAuto: true, config.RulesIPTables: true, config.RulesNFTables: false} {
		c := config.Config{Netfilter: config.Netfilter{Rules: rules}}
		list := Modules(procfs.Files{Root: t.TempDir()}, c)
		if got := slices.Contains(list, "ip_set") || slices.Contains(list, "xt_set"); got != want {
			t.Errorf("--rules=%s: %q", rules, list)
		}
	}
}

// TestCheckSchedulers: a node without the wanted scheduler is fit as long as it has round robin, which
// the agent uses then.
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
			if err := Unfit(config.Config{ModeChoice: config.ModeChoice{Mode: config.ModeIPVS}}, diagnosis.Run(t.Context(), checks)); (err != nil) != tt.unfit {
				t.Errorf("unfit: %v, want %t", err, tt.unfit)
			}
		})
	}
}

// TestCheckSets: set types of a family that the agent does not serve are not checked.
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
	if err := leftOut([]model.Family{model.IPv4}); err == nil || !strings.HasPrefix(err.Error(), "IPv6 is not served") {
		t.Errorf("error %v", err)
	}
}

func TestOtherSchedulers(t *testing.T) {
	for _, tt := range []struct {
		name, lacks string
		broken      error
		state       diagnosis.State
		detail      string
	}{
		{name: "all", state: diagnosis.OK, detail: "wrr lc lblc lblcr sh dh sed nq mh fo ovf twos"},
		{name: "not all", lacks: "mh fo", state: diagnosis.OK, detail: "wrr lc lblc lblcr sh dh sed nq ovf twos; not available: mh fo"},
		{name: "no answer", broken: errors.New("timeout"), state: diagnosis.Warn, detail: "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := one(t, otherSchedulers(scheduler.MustParse("wlc"), func(_ context.Context, name string) error {
				if strings.Contains(tt.lacks, name) {
					return vserver.ErrUnsupported
				}
				return tt.broken
			}))
			if v.State != tt.state || v.Detail != tt.detail {
				t.Errorf("%+v, want %s %q", v, tt.state, tt.detail)
			}
		})
	}
}

// TestMissingIPVS: a node without IPVS is fit, unless its agent fails to start there.
func TestMissingIPVS(t *testing.T) {
	lacks := []diagnosis.Check{{Name: "ip_vs", Fix: "modprobe ip_vs", Run: func(context.Context) error { return diagnosis.Lacking(errors.New("no ip_vs")) }}}
	breaks := []diagnosis.Check{{Name: "ip_vs", Run: func(context.Context) error { return errors.New("no answer") }}}
	for _, tt := range []struct {
		name   string
		c      config.Config
		checks []diagnosis.Check
		fit    bool
	}{
		{"falls back", config.Config{ModeChoice: config.ModeChoice{Mode: config.ModeIPVS, OnMissing: config.OnMissingIPTables}}, lacks, true},
		{"chooses", config.Config{ModeChoice: config.ModeChoice{Mode: config.ModeAuto}}, lacks, true},
		{"fails", config.Config{ModeChoice: config.ModeChoice{Mode: config.ModeIPVS, OnMissing: config.OnMissingFail}}, lacks, false},
		{"not known", config.Config{ModeChoice: config.ModeChoice{Mode: config.ModeIPVS, OnMissing: config.OnMissingIPTables}}, breaks, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			verdicts := diagnosis.Run(t.Context(), softened(tt.c, append([]diagnosis.Check(nil), tt.checks...)))
			if err := Unfit(tt.c, verdicts); (err == nil) != tt.fit {
				t.Errorf("%v: %+v", err, verdicts)
			}
			if said := strings.Contains(verdicts[0].Detail, "would use iptables mode instead"); said != tt.fit {
				t.Errorf("verdict %+v", verdicts[0])
			}
		})
	}
}

func TestCheckSetMatch(t *testing.T) {
	noMatch := fmt.Errorf("find match set: %w", rules.ErrUnsupported)
	for name, c := range map[string]struct {
		rules config.Rules
		match error
		want  string
	}{
		"there":       {config.RulesAuto, nil, "iptables match set: ok\n"},
		"missing":     {config.RulesIPTables, noMatch, "iptables match set: missing\n"},
		"no answer":   {config.RulesAuto, os.ErrDeadlineExceeded, "iptables match set: failed\n"},
		"in nftables": {config.RulesNFTables, noMatch, ""},
	} {
		got := states(t, setMatchCheck(fix, config.Config{Netfilter: config.Netfilter{Rules: c.rules}}, c.match))
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRulesInNFTables(t *testing.T) {
	there, noSets := func() error { return nil }, func() error { return ipset.ErrUnsupported }
	noMatch := func() error { return fmt.Errorf("find match set: %w", rules.ErrUnsupported) }
	noAnswer := func() error { return os.ErrDeadlineExceeded }
	for name, c := range map[string]struct {
		mode  config.Mode
		rules config.Rules
		tools error
		sets  func() error
		want  bool
	}{
		"all there":              {config.ModeIPVS, config.RulesAuto, nil, there, false},
		"no tools":               {config.ModeAuto, config.RulesAuto, rules.ErrUnsupported, there, true},
		"no sets":                {config.ModeIPVS, config.RulesAuto, nil, noSets, true},
		"no match of sets":       {config.ModeIPVS, config.RulesAuto, nil, noMatch, true},
		"no answer":              {config.ModeIPVS, config.RulesAuto, nil, noAnswer, false},
		"wanted":                 {config.ModeIPVS, config.RulesNFTables, nil, there, true},
		"not wanted":             {config.ModeIPVS, config.RulesIPTables, rules.ErrUnsupported, noSets, false},
		"iptables mode":          {config.ModeIPTables, config.RulesNFTables, nil, there, false},
		"tools that do not work": {config.ModeIPVS, config.RulesAuto, os.ErrPermission, there, false},
	} {
		if got := rulesInNFTables(config.Config{ModeChoice: config.ModeChoice{Mode: c.mode}, Netfilter: config.Netfilter{Rules: c.rules}}, c.tools, c.sets); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
