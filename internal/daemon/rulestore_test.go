package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

func TestWhereRulesAre(t *testing.T) {
	noTools := fmt.Errorf("no iptables tools found: %w", rules.ErrUnsupported)
	noSets := fmt.Errorf("no ip_set: %w", ipset.ErrUnsupported)
	noMatch := setMatchMissing(fmt.Errorf("find match set: %w", rules.ErrUnsupported), zap.NewNop())
	noNFT := fmt.Errorf("no nf_tables: %w", nft.ErrUnsupported)
	for name, c := range map[string]struct {
		asked              config.Rules
		tools, sets, table error
		want               config.Rules
		reason, fails      string
	}{
		"all there":                        {config.RulesAuto, nil, nil, nil, config.RulesIPTables, "the kernel and the tools have", ""},
		"no tools":                         {config.RulesAuto, noTools, nil, nil, config.RulesNFTables, "no iptables tools", ""},
		"no sets":                          {config.RulesAuto, nil, noSets, nil, config.RulesNFTables, "no ip_set", ""},
		"sets, and no match of them":       {config.RulesAuto, nil, noMatch, nil, config.RulesNFTables, "rules of iptables cannot refer to sets of ipset", ""},
		"iptables wanted, no match":        {config.RulesIPTables, nil, noMatch, nil, "", "", "rules of iptables cannot refer to sets of ipset"},
		"nothing":                          {config.RulesAuto, nil, noSets, noNFT, "", "", "no ip_set: not supported\nrules cannot be in nftables: no nf_tables"},
		"no right to ask for sets":         {config.RulesAuto, nil, os.ErrPermission, nil, "", "", os.ErrPermission.Error()},
		"iptables wanted":                  {config.RulesIPTables, nil, nil, nil, config.RulesIPTables, "--rules=iptables", ""},
		"iptables wanted, not there":       {config.RulesIPTables, nil, noSets, nil, "", "", "no ip_set"},
		"nftables wanted beside iptables":  {config.RulesNFTables, nil, nil, nil, config.RulesNFTables, "--rules=nftables", ""},
		"nftables wanted without iptables": {config.RulesNFTables, noTools, noSets, nil, config.RulesNFTables, "--rules=nftables", ""},
		"nftables wanted, not there":       {config.RulesNFTables, nil, nil, noNFT, "", "", "no nf_tables"},
	} {
		d, err := decideRules(c.asked, c.tools, func() error { return c.sets }, func() error { return c.table })
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want %q", name, err, c.fails)
			}
			continue
		}
		if err != nil || d.active != c.want || !strings.Contains(d.reason(), c.reason) {
			t.Errorf("%s: %s because of %q, %v", name, d.active, d.reason(), err)
		}
		core, logged := observer.New(zapcore.InfoLevel)
		d.report(zap.New(core), nil)
		if lines := logged.All(); len(lines) != 1 || lines[0].ContextMap()["rules"] != string(c.want) {
			t.Errorf("%s: log %v", name, lines)
		}
	}
}

// A kernel that does not answer may have the match, so its error is not the one that costs iptables.
func TestAnswersAboutTheSetMatch(t *testing.T) {
	lacking := fmt.Errorf("find match set: %w", rules.ErrUnsupported)
	for name, c := range map[string]struct {
		answer  error
		missing bool
		lines   int
	}{
		"there":      {nil, false, 0},
		"missing":    {lacking, true, 0},
		"no answer":  {context.DeadlineExceeded, false, 1},
		"not rights": {os.ErrPermission, false, 1},
	} {
		core, logged := observer.New(zapcore.WarnLevel)
		err := setMatchMissing(c.answer, zap.New(core))
		if (err != nil) != c.missing || c.missing && !lacksIPVS(err) || logged.Len() != c.lines {
			t.Errorf("%s: %v, with %d lines in the log", name, err, logged.Len())
		}
	}
}

// A change of --rules takes the entries along, in both directions: they say whose servers are.
func TestSetsAreAdopted(t *testing.T) {
	ipsets, tables := ipsettest.New(), nftrules.New(nfttest.New()).Sets()
	set := sets.All()[0]
	for _, s := range sets.All() {
		if s.Type == ipset.HashIPPort && s.Timeout == 0 {
			set = s
		}
	}
	entry := ipset.IPPort(netip.MustParseAddr("10.96.0.1"), ipset.TCP, 80)
	if set.Family == ipset.IPv6 {
		entry.Addr = netip.MustParseAddr("fd00::1")
	}
	stranger := ipset.Set{Name: "STRANGER", Type: ipset.HashIP, Family: ipset.IPv4}
	if err := errors.Join(ipsets.Create(t.Context(), set), ipsets.Create(t.Context(), stranger), ipsets.Add(t.Context(), set.Name, entry)); err != nil {
		t.Fatal(err)
	}
	back := ipsettest.New()
	for _, step := range [][2]ipvs.Sets{{ipsets, tables}, {tables, back}} {
		if err := copySets(t.Context(), zap.NewNop(), step[0], step[1]); err != nil {
			t.Fatal(err)
		}
		_, list, err := step[1].List(t.Context(), set.Name)
		if err != nil || len(list) != 1 || list[0] != entry {
			t.Errorf("entries %v, %v; want %v", list, err, entry)
		}
	}
	// Nothing is copied over what is in use.
	if err := errors.Join(tables.Write(t.Context(), set, []ipset.Change{ipset.DeleteEntry(entry)})...); err != nil {
		t.Fatal(err)
	}
	if err := copySets(t.Context(), zap.NewNop(), ipsets, tables); err != nil {
		t.Fatal(err)
	}
	if _, list, err := tables.List(t.Context(), set.Name); err != nil || len(list) != 0 {
		t.Errorf("entries %v, %v; want none", list, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := copySets(ended, zap.NewNop(), ipsets, ipsettest.New()); err == nil {
		t.Error("a failure is no error")
	}
}
