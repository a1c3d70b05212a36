package main

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// someSets are of every type and family, with each kind of entry.
func someSets() []setRow {
	a4, a6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	without := ipset.IPPortNet(a4, ipset.TCP, 80, netip.MustParsePrefix("10.1.0.0/16"))
	without.NoMatch = true
	all := []setRow{
		{ipset.Set{Name: "ip4", Type: ipset.HashIP, Family: ipset.IPv4}, []ipset.Entry{ipset.IP(a4)}},
		{ipset.Set{Name: "ip6", Type: ipset.HashIP, Family: ipset.IPv6}, []ipset.Entry{ipset.IP(a6)}},
		{ipset.Set{Name: "port4", Type: ipset.HashIPPort, Family: ipset.IPv4, MaxElem: 1000}, []ipset.Entry{ipset.IPPort(a4, ipset.TCP, 80), ipset.IPPort(a4, ipset.UDP, 53)}},
		{ipset.Set{Name: "port6", Type: ipset.HashIPPort, Family: ipset.IPv6, HashSize: 4096}, []ipset.Entry{ipset.IPPort(a6, ipset.SCTP, 65535)}},
		{ipset.Set{Name: "portip4", Type: ipset.HashIPPortIP, Family: ipset.IPv4}, []ipset.Entry{ipset.IPPortIP(a4, ipset.TCP, 80, a4)}},
		{ipset.Set{Name: "portip6", Type: ipset.HashIPPortIP, Family: ipset.IPv6}, []ipset.Entry{ipset.IPPortIP(a6, ipset.TCP, 80, a6)}},
		{ipset.Set{Name: "portnet4", Type: ipset.HashIPPortNet, Family: ipset.IPv4}, []ipset.Entry{ipset.IPPortNet(a4, ipset.TCP, 80, netip.MustParsePrefix("10.0.0.0/8")), without}},
		{ipset.Set{Name: "portnet6", Type: ipset.HashIPPortNet, Family: ipset.IPv6}, []ipset.Entry{ipset.IPPortNet(a6, ipset.TCP, 80, netip.MustParsePrefix("fd00::/8"))}},
		{ipset.Set{Name: "ports", Type: ipset.BitmapPort}, []ipset.Entry{ipset.Port(0), ipset.Port(30080)}},
		{ipset.Set{Name: "some-ports", Type: ipset.BitmapPort, PortFrom: 30000, PortTo: 32767}, []ipset.Entry{ipset.Port(30000)}},
		{ipset.Set{Name: "empty", Type: ipset.HashIP, Family: ipset.IPv4}, nil},
	}
	for i := range all {
		all[i].Set = all[i].Set.WithDefaults()
	}
	return all
}

func TestMadeRows(t *testing.T) {
	const services, endpoints = 300, 10
	all := makeRows(services, endpoints)
	want := counts{Servers: services, Destinations: services * endpoints, Sets: 1, Entries: services, Addresses: services}
	if got := all.counts(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	seen := map[string]bool{}
	for _, l := range all.lines() {
		if seen[l] {
			t.Errorf("twice: %s", l)
		}
		seen[l] = true
	}
	if last := inTen(64<<16 + maxServices); last.Compare(inTen(128<<16)) >= 0 {
		t.Errorf("the last Service has %s, an address of endpoints", last)
	}
	if end := 128<<16 + maxServices*maxEndpoints; end > 1<<24 {
		t.Error("the last endpoint has an address that is taken")
	}
}

func TestRowsSurviveAFile(t *testing.T) {
	want := rows{Servers: someServers(), Sets: someSets(), Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")}}
	name := filepath.Join(t.TempDir(), "rows.json")
	if err := saveRows(name, want); err != nil {
		t.Fatal(err)
	}
	got, err := loadRows(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.lines(), got.lines()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got.Sets[3].Set.HashSize != 4096 {
		t.Errorf("the number of buckets is lost: %+v", got.Sets[3].Set)
	}
}

func TestDifferencesAreFound(t *testing.T) {
	wanted := rows{Servers: someServers(), Sets: someSets(), Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
	if err := wanted.missing(wanted); err != nil {
		t.Errorf("the same rows: %v", err)
	}
	for name, change := range map[string]func(*rows){
		"a weight":            func(r *rows) { r.Servers[0].Destinations[0].Destination.Weight = 2 },
		"a scheduler":         func(r *rows) { r.Servers[1].Server.Scheduler = "sh" },
		"a destination lost":  func(r *rows) { r.Servers[0].Destinations = r.Servers[0].Destinations[1:] },
		"a server more":       func(r *rows) { r.Servers = append(r.Servers, makeRows(1, 0).Servers...) },
		"an entry lost":       func(r *rows) { r.Sets[0].Entries = nil },
		"a set's capacity":    func(r *rows) { r.Sets[2].Set.MaxElem = 65536 },
		"an address replaced": func(r *rows) { r.Addresses[0] = netip.MustParseAddr("10.96.0.2") },
	} {
		t.Run(name, func(t *testing.T) {
			have := rows{Servers: someServers(), Sets: someSets(), Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
			change(&have)
			if err := have.missing(wanted); err == nil {
				t.Error("the difference was not found")
			}
		})
	}
	grown := rows{Sets: someSets()}
	grown.Sets[0].Set.HashSize = 1 << 16
	if err := grown.missing(rows{Sets: someSets()}); err != nil {
		t.Errorf("a set that grew: %v", err)
	}
}

func TestASampleHasEachKind(t *testing.T) {
	all := makeRows(100, 10)
	all.Servers = append(all.Servers, someServers()...)
	all.Sets = someSets()
	some := all.sample()
	schedulers := map[string]int{}
	for _, s := range some.Servers {
		schedulers[s.Server.Scheduler]++
	}
	if diff := cmp.Diff(map[string]int{"rr": 1, "mh": 1, "wlc": 1}, schedulers); diff != "" {
		t.Errorf("schedulers (-want +got):\n%s", diff)
	}
	if c := some.counts(); c.Destinations != 2 || c.Sets != len(ipset.Types()) || c.Addresses != 1 {
		t.Errorf("%+v", c)
	}
	if len(all.Servers[0].Destinations) != 10 {
		t.Error("the sample took destinations away")
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"-services 1 -from x":          "exclude each other",
		"-services 100001":             "at most 100000",
		"-services -1":                 "at most 100000",
		"-services 1 -endpoints 81":    "of 80 endpoints",
		"-per-send 0":                  "-per-send",
		"-runs 0":                      "-runs",
		"-tables ipvs,rules":           `table "rules": want sets, ipvs, addresses`,
		"-services 1 more":             "unexpected",
		"-services 1 -tables ipvs,set": `table "set"`,
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
	o, err := parse([]string{"-tables", "ipvs"})
	if err != nil || !o.wants(tableIPVS) || o.wants(tableSets) {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := (options{tables: "sets", from: filepath.Join(t.TempDir(), "none")}).rows(t.Context()); err == nil {
		t.Error("a file that is not there was read")
	}
}
